"""What a score is: one number that says how much an image looks like one of the classes. It owns what it remembers of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..core.banks import FeatureMemory
from ..core.types import Decision, Look, Preprocessing, Scored


@dataclass(frozen=True, slots=True)
class Setting:
    """What a score may know of the adapter that it works in.

    classifier:     the unit text features of the classes [C, D], on the device of all that is computed.
    logit_scale:    the backbone's factor of cosines before a softmax.
    method_scale:   the largest score of the method's own: 1 for cosines, 100 for scaled logits.
    preprocessing:  how the backbone wants its images.
    encode:         unit features [N, D] of such images [N, 3, H, W] under the frozen tower; an Error where there is no tower.
    encode_words:   unit text features [D] by name, of those names that the backbone can encode.
    """

    classifier: torch.Tensor
    logit_scale: float
    method_scale: float
    preprocessing: Preprocessing
    encode: Callable[[torch.Tensor], torch.Tensor]
    encode_words: Callable[[Sequence[str]], Mapping[str, torch.Tensor]] = lambda names: {}


class Score(Protocol):
    """A frozen options dataclass, a memory of bounded size, and the functions below. Only `take`, `reset` and `load` change it.

    Options:  its options, a frozen dataclass with defaults.
    about:    one line for `ostta ls scores`.
    scale:    its largest value, if all values are from 0 to that; None where they are not confined.
    warming_up: may be left out: whether it has seen too few images for the decision to be trusted, where the identifier cannot know.

    >>> ostta.load("embedded", ["cat", "dog"], score="msp").score.scale
    1.0
    """

    Options: type[Any]
    about: str
    scale: float | None

    def __init__(self, options: Any, setting: Setting) -> None:
        """`options` is one of `Options`. An Error where the score cannot work in this setting."""

    def value(self, look: Look[Any]) -> Scored:
        """The score of an image that a method has looked at, before its update; changes nothing."""

    def take(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        """Remember what the image has shown, after its step succeeded. `scored` is what `value` said of it."""

    def memories(self) -> Mapping[str, FeatureMemory]:
        """Its banks of images' features by name; those of known and unknown images are called desired and undesired."""

    def reset(self) -> None: ...

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def load(self, tensors: dict[str, torch.Tensor]) -> None: ...
