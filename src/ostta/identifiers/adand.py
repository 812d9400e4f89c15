"""AdaND's decision: by the threshold that its detector keeps, over recent images and noise images."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.declare import Options
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from .base import Identifier


@dataclass(frozen=True)
class AdaNDOptions(Options):
    """`adand` has no options; the score `detector` has.

    >>> AdaND(AdaNDOptions()).observe(0.6, {"threshold": 0.5}).desired
    True
    """


class AdaND(Identifier):
    """Known from the score's own threshold on, which is part of its evidence. No image is reliable: nothing is to learn from it.

    >>> AdaND().observe(0.4, {"threshold": 0.5}).verdict.value
    'unreliable_undesired'
    """

    Options = AdaNDOptions
    about = "AdaND's: the threshold that the score `detector` keeps by itself, with noise images counted in"
    needs: str | None = "detector"

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        threshold = evidence.get("threshold", 0.5)
        verdict = Verdict.UNRELIABLE_DESIRED if score >= threshold else Verdict.UNRELIABLE_UNDESIRED
        return Decision(verdict, threshold, None, None)
