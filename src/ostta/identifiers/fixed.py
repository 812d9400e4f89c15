"""MSP: fixed thresholds on the maximum softmax probability. Needs no bank, and so has no memory at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ..core.types import Decision, Verdict

# The paper's three triples: below the first reliable undesired, from the second on desired, above the third reliable desired.
TRIPLES = {"0.4/0.6/0.8": (0.4, 0.6, 0.8), "0.3/0.5/0.7": (0.3, 0.5, 0.7), "0.5/0.5/0.5": (0.5, 0.5, 0.5)}


@dataclass(frozen=True)
class MSPOptions:
    """thresholds: one of the paper's triples tau_u/tau_t/tau_d, by name."""

    thresholds: Literal["0.4/0.6/0.8", "0.3/0.5/0.7", "0.5/0.5/0.5"] = "0.4/0.6/0.8"


class MSP:
    """Fixed thresholds on a probability.

    >>> MSP().observe(0.9).verdict.value
    'reliable_desired'
    """

    statistic = "msp"

    def __init__(self, options: MSPOptions | None = None, *, scale: float = 1.0) -> None:
        self.options = options or MSPOptions()

    def peek(self, score: float) -> Decision:
        low, middle, high = TRIPLES[self.options.thresholds]
        return Decision(Verdict.of(score >= middle, score, low, high), middle, high, low)

    def take(self, score: float) -> None:
        """Nothing is remembered."""

    def observe(self, score: float) -> Decision:
        return self.peek(score)

    def reset(self) -> None:
        """Nothing to forget."""

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Nothing to load."""
