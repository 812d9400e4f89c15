"""Bring your own encoder: a backbone from any image tower and ready-made text embeddings."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..core.types import Error, Preprocessing
from .preprocessing import CLIP_MEAN, CLIP_STD
from .protocol import DEFAULT_TEMPLATES
from .towers import frozen, weight_hash


class ImageEmbeds(nn.Module):
    """Takes the embeddings out of the object that `CLIPVisionModelWithProjection` and its like return."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixels).image_embeds
        return features


class Wrapped:
    """What `wrap` returns."""

    id = "wrapped"
    restorable = False
    remark = ""
    prompt_tuning = False
    defaults: Mapping[str, Mapping[str, Any]] = {}

    def __init__(self, vision: nn.Module, text: torch.Tensor, preprocessing: Preprocessing, logit_scale: float) -> None:
        self.vision = vision
        self.preprocessing = preprocessing
        self.logit_scale = logit_scale
        self._text = text
        self._weights = {**vision.state_dict(), "text_features": text}

    @property
    def feature_width(self) -> int:
        return self._text.shape[1]

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """The given text embeddings; there is no text tower, so `templates` has no part in them."""
        if len(classes) != len(self._text):
            raise Error(
                f"There are {len(classes)} classes, but {len(self._text)} rows of text features were given to `wrap`."
            )
        return self._text.clone()

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return []


def wrap(
    vision: nn.Module,
    text_features: torch.Tensor,
    *,
    image_size: int,
    logit_scale: float = 100.0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Wrapped:
    """A backbone from `vision`, which maps normalised images [B, 3, image_size, image_size] to features [B, D].

    `text_features` [C, D] are the embeddings of the classes, in their order; their length does not matter. Images are scaled to
    `image_size` on the short side, cropped at the centre and normalised by `mean` and `std`, which are CLIP's if not given.
    `vision` is copied, and the copy adapts nothing of the original.

    >>> import torch
    >>> tower = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16))
    >>> backbone = wrap(tower, torch.randn(4, 16), image_size=8)
    >>> backbone.classifier(["ant", "bee", "cat", "dog"]).shape
    torch.Size([4, 16])
    """
    if not isinstance(vision, nn.Module):
        raise Error(f"The image tower must be a torch.nn.Module, not a {type(vision).__name__}.")
    if not (math.isfinite(logit_scale) and logit_scale > 0):
        raise Error(f"logit_scale must be a positive number, not {logit_scale}.")
    preprocessing = Preprocessing(
        image_size, _channels("mean", mean, CLIP_MEAN), _channels("std", std, CLIP_STD), fit="crop", resize=image_size
    )
    if min(preprocessing.std) <= 0:
        raise Error(f"std must be positive, not {preprocessing.std}.")
    try:
        own = frozen(copy.deepcopy(vision)).float()
    except RuntimeError as problem:
        raise Error(f"The image tower cannot be copied: {problem}") from problem
    own, features = _probe(own, image_size)
    text = _unit_rows(text_features).to(features.device)
    if features.shape != (1, text.shape[1]):
        raise Error(
            f"The image tower gives {list(features.shape)} for one image, and the text features are {text.shape[1]} wide: "
            f"it must give [1, {text.shape[1]}]."
        )
    return Wrapped(own, text, preprocessing, float(logit_scale))


@torch.no_grad()
def _probe(tower: nn.Module, image_size: int) -> tuple[nn.Module, torch.Tensor]:
    """The tower as a map from tensor to tensor, and what it makes of a grey image."""
    device = next((tensor.device for tensor in tower.parameters()), torch.device("cpu"))
    pixels = torch.zeros(1, 3, image_size, image_size, device=device)
    try:
        output = tower(pixels)
    except Exception as problem:  # somebody else's module: anything may come
        raise Error(f"The image tower does not take a tensor of {list(pixels.shape)}: {problem}") from problem
    if isinstance(output, torch.Tensor):
        return tower, output
    if isinstance(getattr(output, "image_embeds", None), torch.Tensor):
        return ImageEmbeds(tower).eval(), output.image_embeds
    raise Error(
        f"The image tower returns a {type(output).__name__}: it must return a tensor, or an object with `image_embeds`."
    )


def _unit_rows(text_features: torch.Tensor) -> torch.Tensor:
    text = torch.as_tensor(text_features).detach().float()
    if text.ndim != 2 or not text.numel():
        raise Error(f"text_features must have one row a class, [C, D], not the shape {list(text.shape)}.")
    norms = text.norm(dim=1)
    odd = (~torch.isfinite(norms) | (norms == 0)).nonzero().flatten().tolist()
    if odd:
        raise Error(f"Row {odd[0]} of text_features is zero or not finite: each class needs an embedding.")
    return functional.normalize(text, dim=1)


def _channels(
    name: str, values: Sequence[float] | None, default: tuple[float, float, float]
) -> tuple[float, float, float]:
    if values is None:
        return default
    if len(values) != 3 or not all(math.isfinite(value) for value in values):
        raise Error(f"{name} must be three numbers, one a channel, not {list(values)}.")
    red, green, blue = map(float, values)
    return red, green, blue
