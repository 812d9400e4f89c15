"""The LDA identifier: the threshold that splits the recent scores into the two tightest groups (section 4.1, equation 2).

A step sorts the bank once; counts, sums and sums of squares of both groups at every candidate then come from prefix sums, so one
search costs a few array operations instead of one pass over the bank for each candidate.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..config.declare import Options, option
from ..core.banks import WINDOWS, ScoreBank
from ..core.checks import require_names
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict

Floats = NDArray[np.float64]

# So many scores beyond one end of the grid, and none before it, do not happen by chance with the first images.
ENOUGH = 64


@dataclass(frozen=True)
class LDAOptions(Options):
    """Defaults are the published code's.

    >>> LDAOptions(search="exact").window
    512
    """

    search: Literal["grid", "exact"] = option(
        "grid",
        number="D1",
        about="candidates on a grid of 100, or every gap between scores; a score that is not confined always has the latter",
    )
    objective: Literal["weighted", "unweighted"] = option(
        "weighted",
        paper="unweighted",
        number="D1",
        about="variance of the two groups weighted by their size, or plainly summed",
    )
    groups: Literal["inclusive", "strict"] = option(
        "inclusive",
        paper="strict",
        number="D8",
        about="a score equal to a candidate counts in the upper group, or in neither",
    )
    reliable: Literal["means", "threshold"] = option(
        "means", about="beyond the mean of its group, or merely on its side of the threshold (the paper's ablation)"
    )
    window: int = option(512, bounds=WINDOWS, about="how many recent scores count")


class LDA:
    """Otsu's threshold over the last scores.

    >>> identifier = LDA()
    >>> for score in (0.18, 0.19, 0.31, 0.33):
    ...     decision = identifier.observe(score)
    >>> decision.verdict.value, decision.threshold
    ('reliable_desired', 0.2)
    """

    Options = LDAOptions
    about = "the threshold that splits the last 512 scores into the two tightest groups"
    needs: str | None = None

    def __init__(self, options: LDAOptions | None = None, *, scale: float | None = 1.0) -> None:
        self.options = options or LDAOptions()
        # A grid needs a beginning and an end.
        self._exact = self.options.search == "exact" or scale is None
        self.scale = 1.0 if scale is None else scale
        self._candidates: Floats = np.arange(100, dtype=np.float64) * 0.01 * self.scale
        self._cuts = np.arange(1, self.options.window)
        self.bank = ScoreBank(self.options.window)
        # How many of the last scores in a row lie beyond the grid: above its end if positive, below its start if negative.
        self._beyond = 0
        self._warned = False

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        scores = self.bank.sorted_with(score)
        threshold, mu_undesired, mu_desired = self.search(scores)
        return Decision(self._verdict(score, threshold, mu_undesired, mu_desired), threshold, mu_desired, mu_undesired)

    def take(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        self.bank.push(score)
        self._count_beyond(score)
        if self._never_separates() and not self._warned:
            self._warned = True
            place = f"above {self._candidates[-1]:g}, the end" if self._beyond > 0 else "below 0, the start"
            warnings.warn(
                f"All of the last {abs(self._beyond)} scores lie {place} of the grid of thresholds, so LDA separates nothing, "
                "as in the published code: `search=exact` looks for a threshold between any scores.",
                stacklevel=2,
            )

    def observe(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        decision = self.peek(score)
        self.take(score)
        return decision

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
        # Then it was said before these scores were stored.
        self._warned = self._never_separates()

    def _count_beyond(self, score: float) -> None:
        side = int(score >= self._candidates[-1]) - int(score < 0)
        self._beyond = self._beyond + side if side * self._beyond >= 0 and side else side

    def _never_separates(self) -> bool:
        """Whether every score in the bank lies beyond the same end of the grid, and there are enough to say so."""
        return not self._exact and abs(self._beyond) >= max(ENOUGH, len(self.bank))

    def search(self, scores: Floats) -> tuple[float, float, float]:
        """Threshold, mean of the lower group, mean of the upper group, for sorted `scores`.

        Where no candidate has scores on both sides, all is desired and nothing reliable. On the grid that is the published
        rule, threshold 0 and means 0 and 1 (of the scale); without a grid, threshold and means are the one score there is.
        """
        total = len(scores)
        # Centred scores keep the differences of sums accurate.
        centre = scores[total // 2]
        sums = np.zeros(total + 1)
        centred = scores - centre
        centred.cumsum(out=sums[1:])
        if self._exact:
            # Cut in the middle of every gap; cuts between equal scores are struck out below.
            below = above = self._cuts[: total - 1]
        else:
            below = scores.searchsorted(self._candidates, "left")
            above = below if self.options.groups == "inclusive" else scores.searchsorted(self._candidates, "right")
            # Both counts grow along the grid, so the candidates with scores on both sides are one slice of it.
            start, stop = int(below.searchsorted(1)), int(above.searchsorted(total))
            below, above = below[start:stop], above[start:stop]
        if not len(below):
            return self._inseparable(scores)
        low, high = sums[below], sums[-1] - sums[above]
        low_mean, high_mean = low / below, high / (total - above)
        # The spread inside the groups is the sum of squares less what the means explain. With every score in one of the two
        # groups, that sum is the same for all candidates and only the means matter.
        cost = -(low * low_mean + high * high_mean)
        if self.options.objective == "unweighted" or above is not below:
            squares = np.zeros(total + 1)
            (centred * centred).cumsum(out=squares[1:])
            low_square = squares[below] - low * low_mean
            high_square = squares[-1] - squares[above] - high * high_mean
            weighted = self.options.objective == "weighted"
            cost = low_square + high_square if weighted else low_square / below + high_square / (total - above)
        if self._exact:
            cost[scores[1:] == scores[:-1]] = np.inf
        best = int(cost.argmin())
        if cost[best] == np.inf:
            return self._inseparable(scores)
        if self._exact:
            threshold = float(scores[best] + scores[best + 1]) * 0.5
            # The mean of a single score is that score, to the last bit: it is not beyond itself.
            return threshold, float(scores[: best + 1].mean()), float(scores[best + 1 :].mean())
        threshold = float(self._candidates[start + best])
        return threshold, float(low_mean[best] + centre), float(high_mean[best] + centre)

    def _inseparable(self, scores: Floats) -> tuple[float, float, float]:
        return (float(scores[0]),) * 3 if self._exact else (0.0, 0.0, self.scale)

    def _verdict(self, score: float, threshold: float, mu_undesired: float, mu_desired: float) -> Verdict:
        if self.options.reliable == "threshold":
            mu_undesired = mu_desired = threshold
        return Verdict.of(score >= threshold, score, mu_undesired, mu_desired)
