"""What a backbone is: an image tower and a text tower in one space, and the numbers its images need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from ..core.types import Preprocessing

DEFAULT_TEMPLATES = ("a photo of a {}.",)


class Backbone(Protocol):
    """Never changes: adapters hold what adapts in overlays over `vision`.

    >>> backbone = ostta.backbones.load("embedded")
    >>> backbone
    Embedded(embedded, 32 x 32 images, features of 128)
    >>> backbone.trainable, backbone.restorable
    (True, True)

    id:             how to name it to `load` again: "embedded", a hub id or a folder; "wrapped" for one made by `wrap`.
    vision:         a module from normalised images [B, 3, H, W] to raw features [B, D]; frozen, in eval mode.
    preprocessing:  how an image becomes its canonical view; `data.views` carries it out.
    logit_scale:    the model's own temperature, exp(logit_scale) of CLIP.
    defaults:       options it recommends, by method or identifier name: {"rosita": {"lr": 0.01}}.
    device, dtype:  where the towers are, and the precision of their numbers.
    trainable:      whether gradients reach the parameters of `vision`.
    restorable:     whether `load(id)` gives it back; a wrapped one must be handed over.
    remark:         what must be said beside every figure that it is part of, or empty.
    """

    id: str
    vision: nn.Module
    preprocessing: Preprocessing
    logit_scale: float
    defaults: Mapping[str, Mapping[str, Any]]
    device: torch.device
    dtype: torch.dtype
    trainable: bool
    restorable: bool
    remark: str

    @property
    def feature_width(self) -> int:
        """The length of a feature."""

    @property
    def weight_hash(self) -> str:
        """SHA-256 over the initial weights, computed when first asked for."""

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Unit text embeddings, one row a class; with several templates the renormalised mean of their embeddings.

        >>> ostta.backbones.load("embedded").classifier(["cat", "dog"], ["a photo of a {}.", "a {} in the snow."]).shape
        torch.Size([2, 128])
        """

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        """The class names that the model is known not to understand; empty where nothing is known.

        >>> ostta.backbones.load("embedded").unfamiliar(["cat", "violin"])
        ['violin']
        """
