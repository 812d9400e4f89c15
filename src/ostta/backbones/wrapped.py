"""Bring your own encoder: a backbone from any image tower and text embeddings of yours."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch
from torch import nn

from ..core.modes import learning
from ..core.types import Error, Preprocessing
from .preprocessing import CLIP_MEAN, CLIP_STD
from .protocol import DEFAULT_TEMPLATES
from .texts import ANY_CLASS, Numbers, TextFeatures, Texts, texts_of
from .towers import frozen, weight_hash

# Images of a backbone without a tower are of no use, but they are read before that is said.
NO_TOWERS_SIZE = 1


class ImageEmbeds(nn.Module):
    """Takes the embeddings out of the object that `CLIPVisionModelWithProjection` and its like return."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixels).image_embeds
        return features


class InSinglePrecision(nn.Module):
    """A tower whose features come in another precision than the one everything else here has."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixels).float()
        return features


class NoTower(nn.Module):
    """Stands for the image tower of a backbone that has none."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        raise Error("This backbone has no image tower: give features to `step_features`, not images.")


class Wrapped:
    """What `wrap` returns."""

    id = "wrapped"
    restorable = False
    remark = ""
    dtype = torch.float32
    defaults: Mapping[str, Mapping[str, object]] = {}

    def __init__(
        self,
        vision: nn.Module,
        texts: Texts,
        preprocessing: Preprocessing,
        logit_scale: float,
        trainable: bool,
        device: torch.device,
        words: Texts,
    ) -> None:
        self.vision = vision
        self.trainable = trainable
        self.preprocessing = preprocessing
        self.logit_scale = logit_scale
        self.device = device
        self._texts, self._words = texts, words
        self._weights = {**vision.state_dict(), **texts.weights}

    def __repr__(self) -> str:
        images = "no image tower" if isinstance(self.vision, NoTower) else self.preprocessing.images
        return f"Wrapped({images}, features of {self.feature_width})"

    @property
    def feature_width(self) -> int:
        if self._texts.width is None:
            self._texts.width = self._texts.rows([ANY_CLASS]).shape[1]
        return self._texts.width

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """The given text embeddings; there is no text tower, so `templates` has no part in them."""
        return self._texts.rows(classes).to(self.device)

    def encode_words(self, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """The given embeddings of those names that are known."""
        known = self._words.known(names)
        return dict(zip(known, self._words.rows(known).to(self.device), strict=True)) if known else {}

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return []


def wrap(
    vision: nn.Module | None,
    text_features: TextFeatures,
    *,
    image_size: int | None = None,
    logit_scale: float = 100.0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    word_features: Mapping[str, Numbers] | Callable[[list[str]], Numbers] | None = None,
) -> Wrapped:
    """A backbone from `vision`, which maps normalised images [B, 3, image_size, image_size] to features [B, D].

    `text_features` are the embeddings of the classes: a tensor [C, D] in their order, a dictionary from class names to embeddings
    [D], or a function from a list of class names to a tensor [C, D]; their length does not matter. Images are scaled to
    `image_size` on the short side, cropped at the centre and normalised by `mean` and `std`, which are CLIP's if not given.
    `vision` is copied, and the copy adapts nothing of the original. Without a tower (None), adapters take features alone.
    `word_features` are the embeddings of words beside the classes (docs/words.md), a dictionary or a function like `text_features`;
    if not given, `text_features` is asked for words too, where it is a dictionary or a function.
    A state file belongs to the tower and to the embeddings that were given; of a function it knows nothing.

    >>> import torch
    >>> tower = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16))
    >>> backbone = wrap(tower, torch.randn(4, 16), image_size=8)
    >>> backbone.classifier(["ant", "bee", "cat", "dog"]).shape
    torch.Size([4, 16])
    >>> known = {"ant": torch.randn(16), "bee": torch.randn(16), "cat": torch.randn(16)}
    >>> wrap(tower, known, image_size=8).classifier(["cat", "ant"]).shape
    torch.Size([2, 16])
    """
    if vision is not None and not isinstance(vision, nn.Module):
        raise Error(f"The image tower must be a torch.nn.Module, not a {type(vision).__name__}.")
    if vision is not None and (not isinstance(image_size, int) or isinstance(image_size, bool) or image_size < 1):
        raise Error(f"image_size must be the side of the tower's images in pixels, such as 224, not {image_size!r}.")
    if word_features is not None and not (isinstance(word_features, Mapping) or callable(word_features)):
        raise Error(
            f"word_features must be a dictionary from names to embeddings or a function of names, not a {type(word_features).__name__}."
        )
    if not (math.isfinite(logit_scale) and logit_scale > 0):
        raise Error(f"logit_scale must be a positive number, not {logit_scale}.")
    size = image_size or NO_TOWERS_SIZE
    preprocessing = Preprocessing(
        size, _channels("mean", mean, CLIP_MEAN), _channels("std", std, CLIP_STD), fit="crop", resize=size
    )
    if min(preprocessing.std) <= 0:
        raise Error(f"std must be positive, not {preprocessing.std}.")
    with learning():
        texts = texts_of(text_features)
        words = texts if word_features is None else texts_of(word_features)
        if vision is None:
            device = next((rows.device for rows in texts.weights.values()), torch.device("cpu"))
            return Wrapped(NoTower(), texts, preprocessing, float(logit_scale), False, device, words)
        tower, trainable, device = _probed(vision, size, texts)
    return Wrapped(tower, texts, preprocessing, float(logit_scale), trainable, device, words)


def _probed(vision: nn.Module, image_size: int, texts: Texts) -> tuple[nn.Module, bool, torch.device]:
    """A copy of the tower as a map from tensor to features, whether gradients reach its parameters, and where it is.

    All of this is found out on a grey image, and the width of a feature too where the texts do not say it.
    """
    try:
        tower = copy.deepcopy(vision).eval().float().requires_grad_()
    except RuntimeError as problem:
        raise Error(f"The image tower cannot be copied: {problem}") from problem
    device = next((tensor.device for tensor in tower.parameters()), torch.device("cpu"))
    pixels = torch.zeros(1, 3, image_size, image_size, device=device)
    try:
        output = tower(pixels)
    except Exception as problem:  # somebody else's module: anything may come
        raise Error(f"The image tower does not take a tensor of {list(pixels.shape)}: {problem}") from problem
    if isinstance(getattr(output, "image_embeds", None), torch.Tensor):
        tower, output = ImageEmbeds(tower), output.image_embeds
    if not isinstance(output, torch.Tensor):
        raise Error(
            f"The image tower returns a {type(output).__name__}: it must return a tensor, or an object with `image_embeds`."
        )
    if texts.width is None:
        texts.width = output.shape[-1] if output.ndim == 2 and len(output) == 1 else None
        if texts.width is None:
            raise Error(f"The image tower gives {list(output.shape)} for one image: it must give [1, D].")
    if output.shape != (1, texts.width):
        raise Error(
            f"The image tower gives {list(output.shape)} for one image, and the text features are {texts.width} wide: "
            f"it must give [1, {texts.width}]."
        )
    if not output.is_floating_point():
        raise Error(f"The image tower gives features of type {output.dtype}: they must be floating-point numbers.")
    if not bool(torch.isfinite(output).all()):
        raise Error("The image tower gives features that are not finite for a grey image.")
    if output.dtype != torch.float32:
        tower = InSinglePrecision(tower)
    return frozen(tower), output.requires_grad, device


def _channels(
    name: str, values: Sequence[float] | None, default: tuple[float, float, float]
) -> tuple[float, float, float]:
    if values is None:
        return default
    if len(values) != 3 or not all(math.isfinite(value) for value in values):
        raise Error(f"{name} must be three numbers, one a channel, not {list(values)}.")
    red, green, blue = map(float, values)
    return red, green, blue
