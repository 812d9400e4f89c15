"""Views of one image: the canonical view of the processor of the model, and random crops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from ..core.errors import translate_errors
from ..core.losses import unit
from ..core.overlay import outside_inference
from ..core.types import Error, Preprocessing
from .images import to_rgb

# Random resized crop: ranges of the area share and of width / height, with the defaults of torchvision.
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

# An image with a height of one pixel would be resized to billions of pixels before it is cropped. Above this size, only
# the centre is resized.
_MAX_RESIZED_PIXELS = 2**26

CPU = torch.device("cpu")


def canonical(image: Image.Image, preprocessing: Preprocessing) -> torch.Tensor:
    """Resize, centre-crop and normalise an image like transformers. Return float32 [3,S,S]."""
    image, size = to_rgb(image), preprocessing.image_size
    resample = Image.Resampling(preprocessing.resample)
    if preprocessing.fit == "square":
        return pixels_to_tensor(np.asarray(image.resize((size, size), resample)), preprocessing)
    if preprocessing.fit != "crop":
        message = f"The fit '{preprocessing.fit}' is unknown: it must be 'crop' or 'square'."
        raise Error(message, code="preprocessing-invalid")
    width, height = _resized(image.size, preprocessing.resize or size)
    if width * height > _MAX_RESIZED_PIXELS:
        return pixels_to_tensor(np.asarray(_centre_of_strip(image, (width, height), size, resample)), preprocessing)
    pixels = np.asarray(image.resize((width, height), resample))
    return pixels_to_tensor(_centre_crop(pixels, size), preprocessing)


def augmented(image: Image.Image, preprocessing: Preprocessing, generator: np.random.Generator) -> torch.Tensor:
    """Return a random resized crop (bilinear), mirrored with probability 0.5, float32 [3,S,S]."""
    image, size = to_rgb(image), preprocessing.image_size
    crop = _cut(image, _random_box(image.size, generator))
    pixels = np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))
    if generator.random() < 0.5:
        pixels = pixels[:, ::-1]
    return pixels_to_tensor(pixels, preprocessing)


def pixels_to_tensor(array: npt.NDArray[np.uint8], preprocessing: Preprocessing) -> torch.Tensor:
    """Normalise uint8 [H,W,3] pixels to float32 [3,H,W]."""
    levels = _levels(tuple(preprocessing.mean), tuple(preprocessing.std))
    tensor = np.empty((3, *array.shape[:2]), np.float32)
    for channel in range(3):
        tensor[channel] = levels[channel][array[..., channel]]
    return torch.from_numpy(tensor)


def to_levels(views: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Return the nearest uint8 levels of normalised views [N,3,H,W], which are exact for views of images."""
    mean, std = (
        torch.tensor(part, device=views.device)[:, None, None] for part in (preprocessing.mean, preprocessing.std)
    )
    return ((views * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def from_levels(levels: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """Return the normalised views [N,3,H,W] of uint8 levels, bit-identical to those of `canonical`."""
    table = torch.from_numpy(_levels(tuple(preprocessing.mean), tuple(preprocessing.std))).to(levels.device)
    return torch.stack([table[channel][levels[:, channel].long()] for channel in range(3)], dim=1)


class Views:
    """Views of one image, computed on demand. View 0 is the canonical view.

    The random crop of view v at step t depends only on (seed, t, v). `features` are the unit features [D] of the
    canonical view under the frozen tower, if they are already available.
    """

    features: torch.Tensor | None = None

    def __init__(self, tensor: torch.Tensor | None, source: _Source | None, device: torch.device = CPU) -> None:
        self._tensor = tensor  # Views computed so far, [V,3,H,W].
        self._source = source  # Computes further views; None if all views were passed.
        self._device = device

    @classmethod
    def of_image(
        cls, image: Image.Image, preprocessing: Preprocessing, seed: int, step: int, device: torch.device = CPU
    ) -> Views:
        """Return the views of a PIL image at step number `step` of a stream."""
        if seed < 0 or step < 0:
            raise Error(f"Seed {seed} and step {step} cannot be used: both must be 0 or more.", code="seed-invalid")
        return cls(None, _Source(image, preprocessing, seed, step), device)

    @classmethod
    def of_tensor(
        cls, tensor: torch.Tensor, preprocessing: Preprocessing | None = None, device: torch.device = CPU
    ) -> Views:
        """Return views from preprocessed images, float [V,3,H,W].

        If `preprocessing` is passed, the image size is checked.
        """
        is_tensor = isinstance(tensor, torch.Tensor)
        shape = list(tensor.shape) if is_tensor else []
        if len(shape) != 4 or shape[1] != 3 or 0 in shape or not tensor.is_floating_point():
            kind = f"{tensor.dtype} {shape}" if is_tensor else type(tensor).__name__
            message = f"Views must be a tensor of normalised floats [views, 3, height, width], not {kind}."
            raise Error(message, code="views-invalid")
        if preprocessing is not None and shape[2:] != [preprocessing.image_size] * 2:
            size = preprocessing.image_size
            message = f"Views of {shape[2]} x {shape[3]} pixels cannot be used: this model takes {size} x {size}."
            raise Error(message, code="views-invalid")
        with outside_inference():
            own = tensor.clone() if tensor.is_inference() else tensor.detach()
            return cls(own.to(device, torch.float32), None, device)

    @property
    def canonical(self) -> torch.Tensor:
        """View 0, [1,3,H,W]."""
        return self._first(1)

    def augmented(self, count: int) -> torch.Tensor:
        """Views 1 to `count`, [count,3,H,W]."""
        return self._first(1 + count)[1:]

    def require(self, count: int) -> None:
        """Raise an Error unless there are at least `count` views, including the canonical view."""
        if self._source is None and self._tensor is not None and self._tensor.shape[0] < count:
            available = self._tensor.shape[0]
            message = f"{available} views were given, but this method needs {count}, beginning with the canonical view."
            raise Error(message, code="views-invalid")

    def _first(self, count: int) -> torch.Tensor:
        self.require(count)
        have = 0 if self._tensor is None else self._tensor.shape[0]
        if self._source is not None and have < count:
            size = self._source.preprocessing.image_size
            # Pinned memory makes the copy to a GPU asynchronous. Each view is copied once.
            fresh = torch.empty((count - have, 3, size, size), pin_memory=self._device.type == "cuda")
            for number in range(have, count):
                fresh[number - have] = self._source.view(number)
            fresh = fresh.to(self._device, non_blocking=True)
            self._tensor = fresh if self._tensor is None else torch.cat([self._tensor, fresh])
        assert self._tensor is not None
        return self._tensor[:count]


class FeaturesOnly:
    """Replacement for `Views` if only the unit features [D] of an image are available."""

    def __init__(self, features: torch.Tensor) -> None:
        self.features = features

    @classmethod
    def of(cls, features: torch.Tensor | Sequence[float], like: torch.Tensor) -> FeaturesOnly:
        """Normalise features and check them against the classifier `like`."""
        message = f"Features of type {type(features).__name__} cannot be used: give a list of numbers."
        with translate_errors("features-invalid", message, TypeError, ValueError, RuntimeError):
            tensor = torch.as_tensor(features).detach()
        if list(tensor.shape) != [like.shape[1]]:
            message = (
                f"Features of shape {list(tensor.shape)} cannot be used: these classes have {like.shape[1]} numbers."
            )
            raise Error(message, code="features-invalid")
        return cls(unit(tensor.to(like)))

    @property
    def canonical(self) -> torch.Tensor:
        return self.augmented(0)

    def augmented(self, count: int) -> torch.Tensor:
        raise Error("There is no image here, only its features.", code="image-missing")


class _Source:
    """An image and the numbers that determine its views."""

    def __init__(self, image: Image.Image, preprocessing: Preprocessing, seed: int, step: int) -> None:
        self.image, self.preprocessing, self.seed, self.step = to_rgb(image), preprocessing, seed, step

    def view(self, number: int) -> torch.Tensor:
        if number == 0:
            return canonical(self.image, self.preprocessing)
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, self.step, number]))
        return augmented(self.image, self.preprocessing, generator)


@lru_cache(maxsize=16)
def _levels(mean: tuple[float, ...], std: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """Return the normalised value of each of the 256 levels, per channel, with the data types of transformers."""
    scaled = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
    levels: npt.NDArray[np.float32] = (scaled - np.array(mean, np.float32)[:, None]) / np.array(std, np.float32)[
        :, None
    ]
    return levels


def _resized(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Return (width, height) after resizing the short side to `short_side`; the long side is rounded down."""
    width, height = size
    if width <= height:
        return short_side, int(short_side * height / width)
    return int(short_side * width / height), short_side


def _centre_crop(pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Crop the centre `size` x `size`.

    A smaller image is padded with black. An odd row is added at the top, an odd column at the left.
    """
    height, width = pixels.shape[:2]
    top, left = max(0, height - size) // 2, max(0, width - size) // 2
    pixels = pixels[top : top + size, left : left + size]
    if pixels.shape[:2] == (size, size):
        return pixels
    height, width = pixels.shape[:2]
    top, left = math.ceil((size - height) / 2), math.ceil((size - width) / 2)
    padded = np.zeros((size, size, 3), np.uint8)
    padded[top : top + height, left : left + width] = pixels
    return padded


def _centre_of_strip(
    image: Image.Image, resized: tuple[int, int], size: int, resample: Image.Resampling
) -> Image.Image:
    """Resize a very long image and crop its centre in one operation.

    Pillow may process rows and columns in the other order, so pixels may differ by one level, or a few at hard edges.
    """
    starts, ends, shape = [], [], []
    for length, source in zip(resized, image.size, strict=True):
        cut = min(size, length)
        start = (length - cut) // 2
        starts.append(start * source / length)
        ends.append((start + cut) * source / length)
        shape.append(cut)
    middle = image.resize((shape[0], shape[1]), resample, box=(starts[0], starts[1], ends[0], ends[1]))
    return Image.fromarray(_centre_crop(np.asarray(middle), size))


def _random_box(size: tuple[int, int], generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) of a random crop, or the largest centre crop after ten failed attempts."""
    width, height = size
    for _ in range(TRIES):
        area = width * height * generator.uniform(*AREA)
        ratio = math.exp(generator.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = int(generator.integers(0, height - h + 1))
            left = int(generator.integers(0, width - w + 1))
            return left, top, left + w, top + h
    w, h = width, height
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _cut(image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    limit = Image.MAX_IMAGE_PIXELS
    width, height = box[2] - box[0], box[3] - box[1]
    if limit is None or width * height <= limit:
        return image.crop(box)
    # `crop` warns about a decompression bomb for large photos. An unscaled transform copies the same pixels without a
    # warning.
    return image.transform((width, height), Image.Transform.EXTENT, box, Image.Resampling.NEAREST)
