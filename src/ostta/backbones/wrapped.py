"""Backbones from user-supplied encoders: any image tower with precomputed text embeddings."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol

import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.nn import functional

from ..core.errors import translate_errors
from ..core.overlay import learning
from ..core.text import shortened
from ..core.types import Error, Preprocessing
from .preprocessing import CLIP_MEAN, CLIP_STD
from .protocol import DEFAULT_TEMPLATES
from .towers import frozen, weight_hash

# One or more embeddings: a tensor, or an object that numpy converts to an array.
Numbers = torch.Tensor | ArrayLike
TextFeatures = Numbers | Mapping[str, Numbers] | Callable[[list[str]], Numbers]
# Class name passed to a function of class names to determine the width before the classes are known.
ANY_CLASS = "thing"
# Image size of a backbone without an image tower.
NO_TOWERS_SIZE = 1


class ConvertedOutput(nn.Module):
    """Tower that computes its features from the output of another tower by `convert`."""

    def __init__(self, model: nn.Module, convert: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.model, self._convert = model, convert

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self._convert(self.model(pixels))


class NoTower(nn.Module):
    """Placeholder for the image tower of a backbone without one."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        raise Error(
            "This backbone has no image tower: give features to `step_features` instead of images.",
            code="image-tower-missing",
        )


class Wrapped:
    """Backbone returned by `wrap`."""

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
        centre: Numbers | None = None,
    ) -> None:
        self.vision = vision
        self.trainable = trainable
        self.preprocessing = preprocessing
        self.logit_scale = logit_scale
        self.device = device
        self._texts, self._words = texts, words
        self._weights = {**vision.state_dict(), **texts.weights}
        self.centre: torch.Tensor | None = None
        if centre is not None:
            self._weights["centre"] = self.centre = _checked_centre(centre, self.feature_width).to(device)

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
        """Return the text embeddings. `templates` has no effect without a text tower."""
        return self._texts.rows(classes).to(self.device)

    def encode_words(self, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Return the embedding of each name that has one."""
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
    centre: Numbers | None = None,
) -> Wrapped:
    """Build a backbone from `vision`, which maps normalised images [B, 3, image_size, image_size] to features [B, D].

    `text_features` are the embeddings of the classes: a tensor [C, D] in class order, a dictionary from class names to
    embeddings [D], or a function from a list of class names to a tensor [C, D]. They are normalised to unit length.
    `vision` is copied, so the original is not modified. If `vision` is None, adapters accept only features.

    Images are resized to `image_size` on the short side, cropped at the centre and normalised with `mean` and `std`, by
    default those of CLIP. `word_features` are embeddings of words other than the class names (docs/words.md), as a
    dictionary or a function. By default, `text_features` is used if it is a dictionary or a function. `centre` is the
    prior centre: the mean unit feature [D] of some hundred images that the tower encoded and that are not those of the
    stream. A state file stores a hash of the tower, the embeddings and the centre. A function cannot be hashed.

    >>> import torch
    >>> tower = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16))
    >>> backbone = wrap(tower, torch.randn(4, 16), image_size=8)
    >>> backbone.classifier(["ant", "bee", "cat", "dog"]).shape
    torch.Size([4, 16])
    >>> known = {"ant": torch.randn(16), "bee": torch.randn(16), "cat": torch.randn(16)}
    >>> wrap(tower, known, image_size=8).classifier(["cat", "ant"]).shape
    torch.Size([2, 16])
    """
    size = _check_image_size(vision, image_size)
    if word_features is not None and not (isinstance(word_features, Mapping) or callable(word_features)):
        raise _invalid("word_features", "a dictionary or a function of names", type(word_features).__name__)
    if not (math.isfinite(logit_scale) and logit_scale > 0):
        raise _invalid("logit_scale", "a positive number", logit_scale)
    channels = _channels("mean", mean, CLIP_MEAN), _channels("std", std, CLIP_STD)
    if min(channels[1]) <= 0:
        raise _invalid("std", "three positive numbers", channels[1])
    preprocessing = Preprocessing(size, *channels, fit="crop", resize=size)
    with learning():
        texts = texts_of(text_features)
        words = texts if word_features is None else texts_of(word_features)
        if vision is None:
            device = next((rows.device for rows in texts.weights.values()), torch.device("cpu"))
            return Wrapped(NoTower(), texts, preprocessing, float(logit_scale), False, device, words, centre)
        tower, trainable, device = _probed(vision, size, texts)
    return Wrapped(tower, texts, preprocessing, float(logit_scale), trainable, device, words, centre)


def _invalid(name: str, expected: str, value: object) -> Error:
    return Error(f"`{name}` of `wrap` must be {expected}, not {value!r}.", code="wrap-invalid")


def _checked_centre(given: Numbers, width: int) -> torch.Tensor:
    centre = _tensor(given, "`centre`")
    if centre.shape != (width,):
        raise _invalid("centre", f"of shape [{width}], as wide as the text features", list(centre.shape))
    if not bool(torch.isfinite(centre).all()):
        raise _invalid("centre", "finite", centre[~torch.isfinite(centre)][0].item())
    return centre


def _check_image_size(vision: object, image_size: object) -> int:
    if vision is None:
        return image_size if isinstance(image_size, int) and image_size > 0 else NO_TOWERS_SIZE
    if not isinstance(vision, nn.Module):
        raise _invalid("vision", "a torch.nn.Module", type(vision).__name__)
    if not isinstance(image_size, int) or isinstance(image_size, bool) or image_size < 1:
        raise _invalid("image_size", "the side of the input images in pixels, such as 224", image_size)
    return image_size


def _channels(
    name: str, values: Sequence[float] | None, default: tuple[float, float, float]
) -> tuple[float, float, float]:
    if values is None:
        return default
    if len(values) != 3 or not all(math.isfinite(value) for value in values):
        raise _invalid(name, "three numbers, one a channel", list(values))
    red, green, blue = map(float, values)
    return red, green, blue


def _probed(vision: nn.Module, image_size: int, texts: Texts) -> tuple[nn.Module, bool, torch.device]:
    """Return a copy of the tower that maps a tensor to features, whether it is trainable, and its device.

    The tower is run on a black image, which also determines the feature width if the texts do not.
    """
    with translate_errors("image-tower-invalid", "The image tower cannot be copied: {reason}.", RuntimeError):
        tower = copy.deepcopy(vision).eval().float().requires_grad_()
    device = next((tensor.device for tensor in tower.parameters()), torch.device("cpu"))
    pixels = torch.zeros(1, 3, image_size, image_size, device=device)
    message = f"The image tower does not accept a tensor of {list(pixels.shape)}: {{reason}}."
    with translate_errors("image-tower-invalid", message):
        output = tower(pixels)
    if isinstance(getattr(output, "image_embeds", None), torch.Tensor):
        # The output of `CLIPVisionModelWithProjection` and similar models.
        tower, output = ConvertedOutput(tower, attrgetter("image_embeds")), output.image_embeds
    if not isinstance(output, torch.Tensor):
        raise Error(
            f"The image tower returns a {type(output).__name__}: it must return a tensor or an object with "
            "`image_embeds`.",
            code="image-tower-invalid",
        )
    if texts.width is None and output.ndim == 2:
        texts.width = output.shape[-1]
    if output.shape != (1, texts.width) or not output.is_floating_point() or not bool(torch.isfinite(output).all()):
        width = "D" if texts.width is None else texts.width
        raise Error(
            f"The image tower returns {list(output.shape)} of type {output.dtype} for one image: it must return finite "
            f"floating-point numbers of shape [1, {width}], the width of the text features.",
            code="image-tower-invalid",
        )
    if output.dtype != torch.float32:
        tower = ConvertedOutput(tower, torch.Tensor.float)
    return frozen(tower), output.requires_grad, device


# --- text embeddings --------------------------------------------------------------------------------------------------
class Texts(Protocol):
    """Source of the text embeddings.

    width:    width of an embedding, or None if it is not known yet.
    weights:  tensors included in the weight hash of the backbone.
    """

    width: int | None
    weights: dict[str, torch.Tensor]

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        """Return unit embeddings, one row per class, as a new tensor."""

    def known(self, names: Sequence[str]) -> list[str]:
        """Return the `names` that have an embedding by name."""


def texts_of(given: TextFeatures) -> Texts:
    """Return the source for the argument `text_features` of `wrap`."""
    if isinstance(given, Mapping):
        return ByName(given)
    return ByFunction(given) if callable(given) else InOrder(given)


def words_by_name(given: object) -> Texts | None:
    """Return the source of word embeddings if `given` is a dictionary, otherwise None."""
    return ByName(given, "words") if isinstance(given, Mapping) and given else None


class InOrder:
    """Embeddings by the position of the class."""

    def __init__(self, given: Numbers) -> None:
        self._rows = _unit_rows(_tensor(given, "text_features"), "text_features")
        self.width: int | None = self._rows.shape[1]
        self.weights = {"text_features": self._rows}

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        if len(classes) != len(self._rows):
            raise Error(
                f"There are {len(classes)} classes, but `wrap` was given {len(self._rows)} rows of text features.",
                code="text-features-invalid",
            )
        return self._rows.clone()

    def known(self, names: Sequence[str]) -> list[str]:
        return []


class ByName:
    """Embeddings by class name."""

    def __init__(self, given: Mapping[str, Numbers], title: str = "text_features") -> None:
        rows = {name: _tensor(numbers, f"{title}[{name!r}]") for name, numbers in given.items()}
        shapes = {tuple(row.shape) for row in rows.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise Error(
                f"The values of {title} must be embeddings [D] of one width; they have the shapes "
                f"{sorted(shapes)[:5]}.",
                code="text-features-invalid",
            )
        self._rows = {name: _unit_rows(row[None], f"{title}[{name!r}]")[0] for name, row in rows.items()}
        self.width: int | None = next(iter(shapes))[0]
        self.weights = {f"text_features.{name}": row for name, row in self._rows.items()}

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        missing = [name for name in classes if name not in self._rows]
        if missing:
            names = shortened([repr(name) for name in self._rows], most=5)
            raise Error(
                f"There are no text features of the class {missing[0]!r}; `wrap` was given those of {names}.",
                code="class-not-stored",
            )
        return torch.stack([self._rows[name] for name in classes])

    def known(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._rows]


class ByFunction:
    """Embeddings from a function of class names that is called for every classifier."""

    def __init__(self, function: Callable[[list[str]], Numbers]) -> None:
        self._function = function
        self.width: int | None = None
        # A function cannot be hashed; the caller must pass the same function to `Adapter.restore`.
        self.weights: dict[str, torch.Tensor] = {}

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        message = f"The function given to `wrap` fails for {len(classes)} class names: {{reason}}."
        with translate_errors("text-features-invalid", message):
            result = self._function(list(classes))
        features = _tensor(result, "The result of the function given to `wrap`")
        if features.ndim != 2 or len(features) != len(classes) or self.width not in (None, features.shape[1]):
            raise Error(
                f"The function given to `wrap` returns {list(features.shape)} for {len(classes)} class names: it must "
                f"return [{len(classes)}, {'D' if self.width is None else self.width}].",
                code="text-features-invalid",
            )
        return _unit_rows(features, "the result of the function")

    def known(self, names: Sequence[str]) -> list[str]:
        return list(names)


def _tensor(given: Numbers, name: str) -> torch.Tensor:
    message = f"{name} must be numbers, such as a tensor: {{reason}}."
    with translate_errors("text-features-invalid", message, TypeError, ValueError, RuntimeError):
        # Copy, because the caller may modify the tensor later.
        return torch.as_tensor(given).detach().to(torch.float32, copy=True)


def _unit_rows(text: torch.Tensor, name: str) -> torch.Tensor:
    if text.ndim != 2 or not text.numel():
        raise Error(
            f"{name} must have one row a class, [C, D], not the shape {list(text.shape)}.", code="text-features-invalid"
        )
    norms = text.norm(dim=1)
    invalid = (~torch.isfinite(norms) | (norms == 0)).nonzero().flatten().tolist()
    if invalid:
        raise Error(
            f"Row {invalid[0]} of {name} is zero or not finite: every class needs an embedding.",
            code="text-features-invalid",
        )
    return functional.normalize(text, dim=1)
