"""The LDA identifier: Otsu's threshold over the recent scores (section 4.1, equation 2).

An image is reliable if its score lies beyond the mean of its group. The search is implemented in `core/otsu.py`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ..config.declare import Options, option
from ..core.banks import WINDOWS, ScoreBank
from ..core.checks import require_names
from ..core.otsu import Floats, OtsuThreshold, exact_split, grid_split
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from .base import Identifier

# Number of scores beyond the same end of the grid, with none inside, that is too large to be a coincidence.
ENOUGH = 64


@dataclass(frozen=True)
class LDAOptions(Options):
    """Options of `lda`. Defaults are those of the published code.

    >>> LDAOptions(search="exact").window
    512
    """

    search: Literal["grid", "exact"] = option(
        "grid",
        number="D1",
        about="candidate thresholds: a grid of 100 values, or every gap between two scores. Scores "
        "without a scale always use the gaps",
    )
    objective: Literal["weighted", "unweighted"] = option(
        "weighted",
        paper="unweighted",
        number="D1",
        about="sum of the variances of the two groups, weighted by group size or unweighted",
    )
    groups: Literal["inclusive", "strict"] = option(
        "inclusive",
        paper="strict",
        number="D8",
        about="whether a score equal to the candidate threshold belongs to the upper group (inclusive) "
        "or to no group (strict)",
    )
    reliable: Literal["means", "threshold"] = option(
        "means",
        about="a score is reliable beyond the mean of its group (means), or anywhere on its side of the"
        " threshold (threshold, the paper's ablation)",
    )
    window: int = option(512, bounds=WINDOWS, about="number of recent scores that are used")


class LDA(Identifier):
    """Otsu's threshold over the last scores.

    >>> identifier = LDA()
    >>> for score in (0.18, 0.19, 0.31, 0.33):
    ...     decision = identifier.observe(score)
    >>> decision.verdict.value, decision.threshold
    ('reliable_desired', 0.2)
    """

    Options = LDAOptions
    options: LDAOptions
    about = "the threshold that splits the last 512 scores into the two tightest groups"

    def __init__(self, options: LDAOptions | None = None, *, scale: float | None = 1.0) -> None:
        super().__init__(options)
        # A grid requires a largest score.
        self._exact = self.options.search == "exact" or scale is None
        self.scale = 1.0 if scale is None else scale
        self._candidates: Floats = np.arange(100, dtype=np.float64) * 0.01 * self.scale
        self.bank = ScoreBank(self.options.window)
        # Number of consecutive last scores beyond the grid: positive above its end, negative below its start.
        self._beyond = 0
        self._warned = False

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        return self.decide(score, self.bank.sorted_with(score))

    def decide(self, score: float, scores: Floats) -> Decision:
        """Return the decision for `score` among sorted `scores`, which include it."""
        threshold, mu_undesired, mu_desired = self.search(scores)
        return Decision(self._verdict(score, threshold, mu_undesired, mu_desired), threshold, mu_desired, mu_undesired)

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        self.bank.push(score)
        self._count_beyond(score)
        if self._never_separates() and not self._warned:
            self._warned = True
            place = f"above {self._candidates[-1]:g}, the end" if self._beyond > 0 else "below 0, the start"
            warnings.warn(
                f"All of the last {abs(self._beyond)} scores lie {place} of the grid of thresholds, so LDA separates "
                "nothing, as in the published code: `search=exact` looks for a threshold between any scores.",
                stacklevel=2,
            )

    def memories(self) -> dict[str, ScoreBank]:
        return {"scores": self.bank}

    def reset(self) -> None:
        self.bank = ScoreBank(self.options.window)
        self._beyond = 0

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"scores": torch.from_numpy(self.bank.scores())}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("scores",))
        self.bank.load(self.bank.stored(tensors))
        self._beyond = 0
        for score in self.bank.scores():
            self._count_beyond(score)
        # The warning was already issued before these scores were stored.
        self._warned = self._never_separates()

    def _count_beyond(self, score: float) -> None:
        side = int(score >= self._candidates[-1]) - int(score < 0)
        continues = side != 0 and side * self._beyond >= 0
        self._beyond = self._beyond + side if continues else side

    def _never_separates(self) -> bool:
        """Return whether every score in the bank lies beyond the same end of the grid, and there are enough scores."""
        return not self._exact and abs(self._beyond) >= max(ENOUGH, len(self.bank))

    def search(self, scores: Floats) -> OtsuThreshold:
        """Return the threshold and the means of both groups of sorted `scores`.

        If no candidate has scores on both sides, all images are known and none is reliable. The grid search then uses
        the published values: threshold 0, means 0 and 1 (times the scale). The exact search uses the only distinct
        score as threshold and as both means.
        """
        weighted = self.options.objective == "weighted"
        if self._exact:
            return exact_split(scores, weighted) or OtsuThreshold(*(float(scores[0]),) * 3)
        equal_counts: Literal["above", "nowhere"] = "above" if self.options.groups == "inclusive" else "nowhere"
        return grid_split(scores, self._candidates, weighted, equal_counts) or OtsuThreshold(0.0, 0.0, self.scale)

    def _verdict(self, score: float, threshold: float, mu_undesired: float, mu_desired: float) -> Verdict:
        if self.options.reliable == "threshold":
            mu_undesired = mu_desired = threshold
        return Verdict.of(score >= threshold, score, mu_undesired, mu_desired)
