"""AdaND's identifier: a threshold that the detector computes from recent images and noise images."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.declare import Options
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from .base import Identifier


@dataclass(frozen=True)
class AdaNDOptions(Options):
    """`adand` has no options; the options of AdaND belong to the score `detector`.

    >>> AdaND(AdaNDOptions()).observe(0.6, {"threshold": 0.5}).desired
    True
    """


class AdaND(Identifier):
    """Accept images whose score reaches the threshold in the evidence of the score.

    No image is reliable, so methods do not learn from any image.

    >>> AdaND().observe(0.4, {"threshold": 0.5}).verdict.value
    'unreliable_undesired'
    """

    Options = AdaNDOptions
    about = "AdaND: the threshold of the score `detector`, which includes noise images"
    needs: str | None = "detector"

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        threshold = evidence.get("threshold", 0.5)
        verdict = Verdict.UNRELIABLE_DESIRED if score >= threshold else Verdict.UNRELIABLE_UNDESIRED
        return Decision(verdict, threshold, None, None)
