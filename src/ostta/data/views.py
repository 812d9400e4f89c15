"""Views of one image: the canonical one, as the model's own processor makes it, and random crops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from ..core.modes import outside_inference
from ..core.scores import unit
from ..core.types import Error, Preprocessing
from .images import to_rgb

# Random resized crop: share of the area, and width / height, both as in torchvision's defaults.
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10

# A strip one pixel high would grow to billions of pixels before its centre is cut; past this only the centre is resized.
_MAX_RESIZED_PIXELS = 2**26

CPU = torch.device("cpu")


def canonical(image: Image.Image, preprocessing: Preprocessing) -> torch.Tensor:
    """The view a model was trained to see, float32 [3,S,S]: resize, centre crop, normalise, as transformers does it."""
    image, size = to_rgb(image), preprocessing.image_size
    resample = Image.Resampling(preprocessing.resample)
    if preprocessing.fit == "square":
        return pixels_to_tensor(np.asarray(image.resize((size, size), resample)), preprocessing)
    if preprocessing.fit != "crop":
        raise Error(f"The fit '{preprocessing.fit}' is unknown: it must be 'crop' or 'square'.")
    width, height = _resized(image.size, preprocessing.resize or size)
    if width * height > _MAX_RESIZED_PIXELS:
        return pixels_to_tensor(np.asarray(_centre_of_strip(image, (width, height), size, resample)), preprocessing)
    pixels = np.asarray(image.resize((width, height), resample))
    return pixels_to_tensor(_centre_crop(pixels, size), preprocessing)


def augmented(image: Image.Image, preprocessing: Preprocessing, generator: np.random.Generator) -> torch.Tensor:
    """A random resized crop (bilinear) of the full-resolution image, mirrored half of the time; float32 [3,S,S]."""
    image, size = to_rgb(image), preprocessing.image_size
    crop = _cut(image, _random_box(image.size, generator))
    pixels = np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))
    if generator.random() < 0.5:
        pixels = pixels[:, ::-1]
    return pixels_to_tensor(pixels, preprocessing)


def pixels_to_tensor(array: npt.NDArray[np.uint8], preprocessing: Preprocessing) -> torch.Tensor:
    """Normalised float32 [3,H,W] of uint8 [H,W,3] pixels."""
    levels = _levels(tuple(preprocessing.mean), tuple(preprocessing.std))
    tensor = np.empty((3, *array.shape[:2]), np.float32)
    for channel in range(3):
        tensor[channel] = levels[channel][array[..., channel]]
    return torch.from_numpy(tensor)


def to_levels(views: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """The uint8 levels of normalised views [N,3,H,W], for storage: exact for views of images, the nearest level for others."""
    mean, std = (
        torch.tensor(part, device=views.device)[:, None, None] for part in (preprocessing.mean, preprocessing.std)
    )
    return ((views * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def from_levels(levels: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    """The normalised views [N,3,H,W] of uint8 levels, bit by bit those that `canonical` makes."""
    table = torch.from_numpy(_levels(tuple(preprocessing.mean), tuple(preprocessing.std))).to(levels.device)
    return torch.stack([table[channel][levels[:, channel].long()] for channel in range(3)], dim=1)


class Views:
    """The views of one image, made when they are asked for. View 0 is the canonical one.

    The augmented view number v of step t is a function of (seed, t, v) alone, so whoever asks, and how often, gets the same.
    `features` are the unit features [D] of the canonical view under the frozen tower, where they are known already.
    """

    features: torch.Tensor | None = None

    def __init__(self, tensor: torch.Tensor | None, source: _Source | None, device: torch.device = CPU) -> None:
        self._tensor = tensor  # The views that exist so far, [V,3,H,W].
        self._source = source  # Where more come from; None where all were given.
        self._device = device

    @classmethod
    def of_image(
        cls, image: Image.Image, preprocessing: Preprocessing, seed: int, step: int, device: torch.device = CPU
    ) -> Views:
        """Views of a PIL image at step number `step` of a stream."""
        if seed < 0 or step < 0:
            raise Error(f"Seed {seed} and step {step} cannot be used: both must be 0 or more.")
        return cls(None, _Source(image, preprocessing, seed, step), device)

    @classmethod
    def of_tensor(
        cls, tensor: torch.Tensor, preprocessing: Preprocessing | None = None, device: torch.device = CPU
    ) -> Views:
        """Views that are preprocessed already: float [V,3,H,W]. With `preprocessing`, the image size is checked too."""
        if not isinstance(tensor, torch.Tensor):
            raise Error(
                f"Views of type {type(tensor).__name__} cannot be used: give a float tensor [views, 3, height, width]."
            )
        shape = list(tensor.shape)
        if tensor.ndim != 4 or shape[1] != 3 or 0 in shape:
            raise Error(f"Views of shape {shape} cannot be used: the shape must be [views, 3, height, width].")
        if not tensor.is_floating_point():
            raise Error(f"Views of type {tensor.dtype} cannot be used: they must be normalised floats.")
        if preprocessing is not None and shape[2:] != [preprocessing.image_size] * 2:
            size = preprocessing.image_size
            raise Error(f"Views of {shape[2]} x {shape[3]} pixels cannot be used: this model takes {size} x {size}.")
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
        """Raise an Error unless there are `count` views, the canonical one included. More than that are ignored."""
        if self._source is None and self._tensor is not None and self._tensor.shape[0] < count:
            raise Error(
                f"{self._tensor.shape[0]} views were given, but this method needs {count}, the canonical one first."
            )

    def _first(self, count: int) -> torch.Tensor:
        self.require(count)
        have = 0 if self._tensor is None else self._tensor.shape[0]
        if self._source is not None and have < count:
            size = self._source.preprocessing.image_size
            # Pinned, so that the copy to a GPU need not be waited for; each view is copied once.
            fresh = torch.empty((count - have, 3, size, size), pin_memory=self._device.type == "cuda")
            for number in range(have, count):
                fresh[number - have] = self._source.view(number)
            fresh = fresh.to(self._device, non_blocking=True)
            self._tensor = fresh if self._tensor is None else torch.cat([self._tensor, fresh])
        assert self._tensor is not None
        return self._tensor[:count]


class FeaturesOnly:
    """What stands for the views of an image of which only the unit features [D] are known."""

    def __init__(self, features: torch.Tensor) -> None:
        self.features = features

    @classmethod
    def of(cls, features: torch.Tensor | Sequence[float], like: torch.Tensor) -> FeaturesOnly:
        """Features of any length, which are made unit ones, in the space of the classifier `like`."""
        try:
            own = torch.as_tensor(features).detach()
        except (TypeError, ValueError, RuntimeError):
            raise Error(f"Features of type {type(features).__name__} cannot be used: give a list of numbers.") from None
        if list(own.shape) != [like.shape[1]]:
            raise Error(
                f"Features of shape {list(own.shape)} cannot be used: these classes have {like.shape[1]} numbers."
            )
        return cls(unit(own.to(like)))

    @property
    def canonical(self) -> torch.Tensor:
        raise Error("There is no image here, only its features.")

    def augmented(self, count: int) -> torch.Tensor:
        raise Error("There is no image here, only its features.")


class _Source:
    """An image and the numbers that fix its views."""

    def __init__(self, image: Image.Image, preprocessing: Preprocessing, seed: int, step: int) -> None:
        self.image, self.preprocessing, self.seed, self.step = to_rgb(image), preprocessing, seed, step

    def view(self, number: int) -> torch.Tensor:
        if number == 0:
            return canonical(self.image, self.preprocessing)
        generator = np.random.default_rng(np.random.SeedSequence([self.seed, self.step, number]))
        return augmented(self.image, self.preprocessing, generator)


@lru_cache(maxsize=16)
def _levels(mean: tuple[float, ...], std: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """The normalised value of each of the 256 levels, per channel; the types of each operation are those of transformers."""
    scaled = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
    levels: npt.NDArray[np.float32] = (scaled - np.array(mean, np.float32)[:, None]) / np.array(std, np.float32)[
        :, None
    ]
    return levels


def _resized(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """(width, height) once the short side is `short_side`; the long one is rounded down."""
    width, height = size
    if width <= height:
        return short_side, int(short_side * height / width)
    return int(short_side * width / height), short_side


def _centre_crop(pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """The middle `size` x `size`; where the image is smaller, black around it, the odd row above and the odd column left."""
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
    """Resize a very long image and cut its centre in one go.

    Pillow may then take rows and columns in the other order and round differently: by a level, or a few at hard edges.
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
    """(left, top, right, bottom) of a crop of random area and ratio; the largest fitting centre after ten misses."""
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
    # Pillow's crop warns of a "decompression bomb" on a large photo; an unscaled transform copies the same pixels silently.
    return image.transform((width, height), Image.Transform.EXTENT, box, Image.Resampling.NEAREST)
