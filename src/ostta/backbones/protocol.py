"""Protocols of backbones: the common interface and optional capabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from ..core.types import Preprocessing

DEFAULT_TEMPLATES = ("a photo of a {}.",)


class Backbone(Protocol):
    """An image tower and text embeddings in a shared space.

    A backbone is immutable: adapted tensors are stored in overlays over `vision`.

    >>> backbone = ostta.backbones.load("embedded")
    >>> backbone
    Embedded(embedded, 32 x 32 images, features of 128)
    >>> backbone.trainable, backbone.restorable
    (True, True)

    id:             name for `load`: "embedded", an id on the hub or a folder; "wrapped" for a backbone from `wrap`.
    vision:         frozen module in eval mode, from normalised images [B, 3, H, W] to raw features [B, D].
    preprocessing:  conversion of an image to its canonical view, applied by `data.views`.
    logit_scale:    factor of the logits, exp(logit_scale) of CLIP.
    defaults:       recommended options by method or identifier: {"rosita": {"lr": 0.01}}.
    device, dtype:  device and precision of the towers.
    trainable:      whether gradients reach the parameters of `vision`.
    restorable:     whether `load(id)` returns the same backbone; a wrapped backbone must be passed by the caller.
    remark:         remark shown with every result of this backbone, or an empty string.
    """

    id: str
    vision: nn.Module
    preprocessing: Preprocessing
    logit_scale: float
    defaults: Mapping[str, Mapping[str, object]]
    device: torch.device
    dtype: torch.dtype
    trainable: bool
    restorable: bool
    remark: str

    @property
    def feature_width(self) -> int:
        """Number of dimensions of a feature."""

    @property
    def weight_hash(self) -> str:
        """SHA-256 of the initial weights, computed on first use."""

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Return unit text embeddings, one row per class. Several templates are averaged and renormalised.

        >>> ostta.backbones.load("embedded").classifier(["cat", "dog"], ["a photo of a {}.", "a {} in the snow."]).shape
        torch.Size([2, 128])
        """

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        """Return the class names outside the vocabulary of the model, or an empty list if the vocabulary is not known.

        >>> ostta.backbones.load("embedded").unfamiliar(["cat", "violin"])
        ['violin']
        """


# --- optional capabilities: a backbone has one if it implements the members of the protocol ---------------------------
@runtime_checkable
class HasTextTower(Protocol):
    """A backbone with a trainable text tower.

    text: module of the text tower, which `embed` runs.

    >>> isinstance(ostta.backbones.load("embedded"), ostta.backbones.HasTextTower)
    True
    """

    @property
    def text(self) -> nn.Module: ...

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Return raw features of the prompts, class by class, with gradients if `text` has them."""


@runtime_checkable
class ReadsPrompts(Protocol):
    """A backbone whose text tower encodes complete prompts, not only class names in templates.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2)), ostta.backbones.ReadsPrompts)
    False
    """

    def read(self, prompts: Sequence[str]) -> torch.Tensor:
        """Return unit text embeddings, one row per prompt.

        >>> ostta.backbones.load("embedded").read(["a photo of a cat", "a dog in the snow"]).shape
        torch.Size([2, 128])
        """


@runtime_checkable
class EncodesWords(Protocol):
    """A backbone without a text tower that has embeddings of words other than the class names.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2)), ostta.backbones.EncodesWords)
    True
    """

    def encode_words(self, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Return the unit text embedding [D] of each name that has one.

        >>> known = {"cat": [1.0, 0.0], "teapot": [0.0, 2.0]}
        >>> ostta.backbones.wrap(None, known).encode_words(["teapot", "kite"])
        {'teapot': tensor([0., 1.])}
        """


@runtime_checkable
class HasCentre(Protocol):
    """A backbone with a given prior centre. Other backbones encode images that ship with ostta (`ostta.centre`).

    centre: mean unit feature [D] of some hundred images, float32 on `device`; None if there is no prior centre.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2), centre=[0.1, 0.2]), ostta.backbones.HasCentre)
    True
    """

    @property
    def centre(self) -> torch.Tensor | None: ...


@runtime_checkable
class RelatesNames(Protocol):
    """A backbone with a name hierarchy, so that a subtype of a class is not treated as another object.

    >>> isinstance(ostta.backbones.load("photos"), ostta.backbones.RelatesNames)
    True
    """

    def other_words(self, words: Sequence[str], classes: Sequence[str]) -> Sequence[str]:
        """Return the words that name neither a class nor a subtype of a class.

        >>> ostta.backbones.load("photos").other_words(["beagle", "teapot"], ["dog"])
        ['teapot']
        """


class TunablePrompts(Protocol):
    """Prompts of classes as tunable vectors.

    free:          tunable tensors that belong to no module.
    vision_names:  parameters of the image tower that belong to the prompts.
    """

    @property
    def free(self) -> Mapping[str, torch.Tensor]: ...

    @property
    def vision_names(self) -> Sequence[str]: ...

    def classify(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return raw features, one row per class, with `tensors` in place of the values of the prompts."""


@runtime_checkable
class TunesPrompts(Protocol):
    """A backbone whose text tower accepts prompts as vectors.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2)), ostta.backbones.TunesPrompts)
    False
    """

    def prompted(self, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> TunablePrompts:
        """Return the prompts of `classes`, initialised with the words of `template`."""


@dataclass(frozen=True)
class Statistics:
    """Means and population variances of source tokens at the input of each block, [blocks, tokens, width]."""

    means: torch.Tensor
    variances: torch.Tensor


class TokenTower(Protocol):
    """An image tower that exposes its tokens."""

    @property
    def blocks(self) -> int:
        """Number of blocks."""

    def with_tokens(self, pixels: torch.Tensor, blocks: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return raw features and the inputs [B, tokens, width] of the first `blocks` blocks, prompts included."""

    def tokens(self, pixels: torch.Tensor, blocks: int) -> list[torch.Tensor]:
        """Return the inputs of the first `blocks` blocks without computing the later blocks."""


@runtime_checkable
class HasTokenStatistics(Protocol):
    """A backbone whose tokens can be aligned with those of source images, as in PromptAlign.

    tower:       image tower.
    statistics:  token statistics on source images, or None before they are measured.

    >>> isinstance(ostta.backbones.load("embedded"), ostta.backbones.HasTokenStatistics)
    False
    """

    @property
    def device(self) -> torch.device: ...

    @property
    def tower(self) -> TokenTower: ...

    @property
    def statistics(self) -> Statistics | None: ...
