"""What a backbone is: an image tower and a text tower in one space, and the numbers its images need. And what some can do more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
    defaults: Mapping[str, Mapping[str, object]]
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


# --- what some backbones can do more: having the members of a protocol is to declare it ---------------------------------
@runtime_checkable
class HasTextTower(Protocol):
    """Its text tower is there, so that it can be trained as well.

    text: the tower, a module; `embed` runs it.

    >>> isinstance(ostta.backbones.load("embedded"), ostta.backbones.HasTextTower)
    True
    """

    @property
    def text(self) -> nn.Module: ...

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Raw features of the prompts, all templates of the first class first; with graph where the weights of `text` have one."""


@runtime_checkable
class ReadsPrompts(Protocol):
    """Its text tower reads whole prompts, and not only class names in templates.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2)), ostta.backbones.ReadsPrompts)
    False
    """

    def read(self, prompts: Sequence[str]) -> torch.Tensor:
        """Unit text embeddings, one row a prompt.

        >>> ostta.backbones.load("embedded").read(["a photo of a cat", "a dog in the snow"]).shape
        torch.Size([2, 128])
        """


@runtime_checkable
class EncodesWords(Protocol):
    """It has no text tower, but text embeddings of words beside those of the classes.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2)), ostta.backbones.EncodesWords)
    True
    """

    def encode_words(self, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Unit text embeddings [D] by name, of those names that it knows.

        >>> known = {"cat": [1.0, 0.0], "teapot": [0.0, 2.0]}
        >>> ostta.backbones.wrap(None, known).encode_words(["teapot", "kite"])
        {'teapot': tensor([0., 1.])}
        """


@runtime_checkable
class RelatesNames(Protocol):
    """It knows which names cover others, so that a part of a class does not count as another thing.

    >>> isinstance(ostta.backbones.load("photos"), ostta.backbones.RelatesNames)
    True
    """

    def other_words(self, words: Sequence[str], classes: Sequence[str]) -> Sequence[str]:
        """The words that name none of the classes and nothing that a class covers.

        >>> ostta.backbones.load("photos").other_words(["beagle", "teapot"], ["dog"])
        ['teapot']
        """


class TunablePrompts(Protocol):
    """The prompts of some classes as vectors that can be tuned.

    free:          tensors that may be tuned and belong to no module.
    vision_names:  parameters of the image tower that belong to the prompts.
    """

    @property
    def free(self) -> Mapping[str, torch.Tensor]: ...

    @property
    def vision_names(self) -> Sequence[str]: ...

    def classify(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Raw features, one row a class, with `tensors` in place of the prompts' own values, by name."""


@runtime_checkable
class TunesPrompts(Protocol):
    """Its text tower can be run from prompt vectors.

    >>> isinstance(ostta.backbones.wrap(None, torch.eye(2)), ostta.backbones.TunesPrompts)
    False
    """

    def prompted(self, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> TunablePrompts:
        """The prompts of `classes`, which start as the words of `template`."""


@dataclass(frozen=True)
class Statistics:
    """Of the tokens of source images at the input of each block: means and population variances, [blocks, tokens, width]."""

    means: torch.Tensor
    variances: torch.Tensor


class TokenTower(Protocol):
    """An image tower whose tokens can be seen."""

    @property
    def blocks(self) -> int:
        """How many blocks it has."""

    def with_tokens(self, pixels: torch.Tensor, blocks: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Raw features, and the inputs [B, tokens, width] of the first `blocks` blocks, prompts included."""

    def tokens(self, pixels: torch.Tensor, blocks: int) -> list[torch.Tensor]:
        """The inputs of the first `blocks` blocks alone."""


@runtime_checkable
class HasTokenStatistics(Protocol):
    """The tokens of its image tower can be held to those of source images, which PromptAlign does.

    tower:       the image tower.
    statistics:  of its tokens on source images; None until they were taken.

    >>> isinstance(ostta.backbones.load("embedded"), ostta.backbones.HasTokenStatistics)
    False
    """

    @property
    def device(self) -> torch.device: ...

    @property
    def tower(self) -> TokenTower: ...

    @property
    def statistics(self) -> Statistics | None: ...
