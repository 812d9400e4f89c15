"""The identifier `field`: an image is known if that is more probable than not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..config.declare import Options, option
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from ..identifiers.base import Identifier


@dataclass(frozen=True)
class FieldIdentifierOptions(Options):
    """When a decision counts as reliable.

    >>> FieldIdentifierOptions().reliable
    0.9
    """

    reliable: float = option(
        0.9, bounds=(0.5, 1), about="probability above which a decision is reliable, for methods that learn from it"
    )


class FieldIdentifier(Identifier):
    """Decide by the sign of the log-odds.

    >>> decision = FieldIdentifier().observe(1.0)
    >>> decision.desired, round(decision.probability, 2)
    (True, 0.73)
    """

    Options = FieldIdentifierOptions
    options: FieldIdentifierOptions
    about = "known if that is more probable than not, by the score `field`: ours"
    needs: str | None = "field"

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        probability = 1 / (1 + math.exp(-min(max(score, -700.0), 700.0)))
        reliable = self.options.reliable
        verdict = Verdict.of(score >= 0, probability, 1 - reliable, reliable)
        return Decision(verdict, 0.0, None, None, probability)
