"""What a score is: one number that says how much an image looks like one of the classes. It owns what it remembers of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..config.declare import Options
from ..core.banks import FeatureMemory
from ..core.checks import require_names
from ..core.former_names import accept_former_name
from ..core.types import Decision, Look, Preprocessing, Scored


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs available to a score.

    classifier:     unit text features of the classes [C, D], on the device of all computations.
    logit_scale:    factor of the backbone on cosines before a softmax.
    method_scale:   the largest score of the method: 1 for cosines, 100 for scaled logits.
    preprocessing:  preprocessing of the backbone.
    encode:         unit features [N, D] of preprocessed images [N, 3, H, W] under the frozen tower; an Error without a tower.
    encode_words:   unit text features [D] by name, for the names that the backbone can encode.
    """

    classifier: torch.Tensor
    logit_scale: float
    method_scale: float
    preprocessing: Preprocessing
    encode: Callable[[torch.Tensor], torch.Tensor]
    encode_words: Callable[[Sequence[str]], Mapping[str, torch.Tensor]] = lambda names: {}


class Score:
    """Base of scores. A score without a memory implements `__init__` and `value` only; any class with these functions works as well.

    Only `remember`, `reset` and `load` change a score.

    Options:     a frozen dataclass with defaults; may be left out.
    about:       one line for `ostta ls scores`.
    scale:       the largest value, if all values lie between 0 and it; None otherwise.
    warming_up:  may be left out: whether too few images were seen for the decision to be trusted, if the identifier cannot tell.

    >>> ostta.load("embedded", ["cat", "dog"], score="msp").score.scale
    1.0
    """

    Options: type[Any] = Options
    about: str
    scale: float | None

    def __init__(self, options: Any, setting: Setting) -> None:
        """`options` is an instance of `Options`. Raise an Error if the score cannot work in this setting."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        accept_former_name(cls)

    def value(self, look: Look[Any]) -> Scored:
        """Return the score of an image that a method has looked at, before its update. Changes nothing."""
        raise NotImplementedError

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        """Store what the image has shown, after its step succeeded. `scored` is the result of `value`."""

    def memories(self) -> Mapping[str, FeatureMemory]:
        """Return its banks of features by name; banks of known and unknown images are called desired and undesired."""
        return {}

    def reset(self) -> None:
        """Forget all images."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what it remembers, for the state file."""
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace what it remembers by the result of an earlier `tensors`."""
        require_names(tensors, ())
