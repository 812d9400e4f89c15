"""Identifiers without a bank: `msp` with fixed thresholds on the softmax probability, and `all` for closed sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..config.declare import Options, option
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from .base import Identifier

# The three triples of the paper. Scores below the first value are reliable undesired, scores from the second value on
# are desired, and scores above the third value are reliable desired.
TRIPLES = {"0.4/0.6/0.8": (0.4, 0.6, 0.8), "0.3/0.5/0.7": (0.3, 0.5, 0.7), "0.5/0.5/0.5": (0.5, 0.5, 0.5)}


@dataclass(frozen=True)
class MSPOptions(Options):
    """Options of `msp`: the triple of thresholds.

    >>> MSP(MSPOptions("0.3/0.5/0.7")).observe(0.55).threshold
    0.5
    """

    thresholds: Literal["0.4/0.6/0.8", "0.3/0.5/0.7", "0.5/0.5/0.5"] = option(
        "0.4/0.6/0.8", about="one of the three triples tau_u/tau_t/tau_d of the paper"
    )


class MSP(Identifier):
    """Fixed thresholds on a probability.

    >>> MSP().observe(0.9).verdict.value
    'reliable_desired'
    """

    Options = MSPOptions
    options: MSPOptions
    about = "fixed thresholds on the maximum softmax probability"
    needs: str | None = "msp"

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        low, middle, high = TRIPLES[self.options.thresholds]
        return Decision(Verdict.of(score >= middle, score, low, high), middle, high, low)


@dataclass(frozen=True)
class AllOptions(Options):
    """`all` has no options.

    >>> All(AllOptions()).observe(0.1).desired
    True
    """


class All(Identifier):
    """Accept every image and mark none as reliable, for closed sets without unknown images.

    >>> All().observe(0.1).verdict.value
    'unreliable_desired'
    """

    Options = AllOptions
    about = "accepts every image, for closed sets"

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        return Decision(Verdict.UNRELIABLE_DESIRED, None, None, None)
