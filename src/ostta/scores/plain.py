"""The scores that look at one image alone: the best logit, as in the paper, and the best class's probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..core.banks import FeatureMemory
from ..core.checks import require_names
from ..core.options import Options
from ..core.scores import max_score, max_softmax_score
from ..core.types import Decision, Look, Scored
from .protocol import Setting


class Memoryless:
    """Remembers nothing."""

    def take(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        """Nothing is remembered."""

    def memories(self) -> dict[str, FeatureMemory]:
        return {}

    def reset(self) -> None:
        """Nothing to forget."""

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Nothing to load, and nothing may be there."""
        require_names(tensors, ())


@dataclass(frozen=True)
class MaxOptions(Options):
    """`max` has no options."""


class Max(Memoryless):
    """s = max_c z_c over the method's own scores: its logits, or what it names in their place.

    >>> ostta.load("embedded", ["cat", "dog"], score="max").step(image).score > 0.4
    True
    """

    Options = MaxOptions
    about = "the best logit of the method, for most methods the best cosine: the paper's"

    def __init__(self, options: MaxOptions, setting: Setting) -> None:
        self.scale: float | None = setting.method_scale

    def value(self, look: Look[Any]) -> Scored:
        return Scored(max_score(look.logits if look.scores is None else look.scores))


@dataclass(frozen=True)
class MaxSoftmaxOptions(Options):
    """`msp` has no options."""


class MaxSoftmax(Memoryless):
    """The largest probability in the softmax of the scaled cosines.

    >>> 0.5 < ostta.load("embedded", ["cat", "dog"], score="msp").step(image).score < 1
    True
    """

    Options = MaxSoftmaxOptions
    about = "the maximum softmax probability, at the backbone's own temperature"
    scale: float | None = 1.0

    def __init__(self, options: MaxSoftmaxOptions, setting: Setting) -> None:
        self._logit_scale = setting.logit_scale

    def value(self, look: Look[Any]) -> Scored:
        return Scored(max_softmax_score(look.cosines, self._logit_scale))
