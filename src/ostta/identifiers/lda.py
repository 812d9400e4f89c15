"""The LDA identifier: the threshold that splits the recent scores into the two tightest groups (section 4.1, equation 2).

A step sorts the bank once; counts, sums and sums of squares of both groups at every candidate then come from prefix sums, so one
search costs a few array operations instead of one pass over the bank for each candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.memory import ScoreBank
from ..core.types import Decision, Error, Verdict

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LDAOptions:
    """`reference` values are the defaults.

    search: "grid" tries 100 fixed candidates (0.00 ... 0.99 on the cosine scale); "exact" tries every gap between scores.
    objective: "weighted" by group size, as published (Otsu), or the paper's "unweighted" sum of variances (D1).
    groups: a score equal to a candidate is in the upper group ("inclusive", published) or in neither ("strict", paper) (D8).
    reliable: beyond the group "means" (published), or merely on its side of the "threshold" (the paper's ablation).
    window: how many recent scores count.
    """

    search: Literal["grid", "exact"] = "grid"
    objective: Literal["weighted", "unweighted"] = "weighted"
    groups: Literal["inclusive", "strict"] = "inclusive"
    reliable: Literal["means", "threshold"] = "means"
    window: int = 512


class LDA:
    """Otsu's threshold over the last scores.

    >>> identifier = LDA()
    >>> for score in (0.18, 0.19, 0.31, 0.33):
    ...     decision = identifier.observe(score)
    >>> decision.verdict.value, decision.threshold
    ('reliable_desired', 0.2)
    """

    statistic = "max"

    def __init__(self, options: LDAOptions | None = None, *, scale: float = 1.0) -> None:
        self.options = options or LDAOptions()
        if self.options.window < 2:
            raise Error(f"The identifier needs a window of at least 2 scores, not {self.options.window}.")
        self.scale = scale
        self._grid: Floats = np.arange(100) * 0.01 * scale
        self.bank = ScoreBank(self.options.window)

    def peek(self, score: float) -> Decision:
        scores = self.bank.sorted_with(score)
        threshold, mu_undesired, mu_desired = self.search(scores)
        return Decision(self._verdict(score, threshold, mu_undesired, mu_desired), threshold, mu_desired, mu_undesired)

    def take(self, score: float) -> None:
        self.bank.push(score)

    def observe(self, score: float) -> Decision:
        decision = self.peek(score)
        self.take(score)
        return decision

    def reset(self) -> None:
        self.bank = ScoreBank(self.options.window)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"scores": torch.from_numpy(self.bank.scores())}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.bank.load(tensors["scores"].numpy())

    def search(self, scores: Floats) -> tuple[float, float, float]:
        """Threshold, mean of the lower group, mean of the upper group, for sorted `scores`.

        Where no candidate has scores on both sides, all is desired and nothing reliable. On the grid that is the published
        rule, threshold 0 and means 0 and 1 (of the scale); without a grid, threshold and means are the one score there is.
        """
        if self.options.search == "exact":
            # Every gap between two different neighbours, cut in the middle. Rounding may put the middle on the upper
            # neighbour, which is then still in the upper group.
            below = np.flatnonzero(scores[1:] > scores[:-1]) + 1
            candidates = (scores[below - 1] + scores[below]) * 0.5
            above = below
        else:
            candidates = self._grid
            below = scores.searchsorted(candidates, "left")
            above = below if self.options.groups == "inclusive" else scores.searchsorted(candidates, "right")
        total = len(scores)
        # Centred scores keep the difference of sums of squares accurate.
        centre = scores[total // 2]
        sums = np.zeros((2, total + 1))
        centred = scores - centre
        np.cumsum(centred, out=sums[0, 1:])
        np.cumsum(centred * centred, out=sums[1, 1:])
        low_count, high_count = below, total - above
        with np.errstate(divide="ignore", invalid="ignore"):
            low_mean = sums[0, below] / low_count
            high_mean = (sums[0, -1] - sums[0, above]) / high_count
            low_square = sums[1, below] - low_mean * low_mean * low_count
            high_square = sums[1, -1] - sums[1, above] - high_mean * high_mean * high_count
            if self.options.objective == "weighted":
                cost = low_square + high_square
            else:
                cost = low_square / low_count + high_square / high_count
        cost[(low_count == 0) | (high_count == 0)] = np.inf
        best = int(cost.argmin()) if len(cost) else 0
        if not len(cost):
            return (float(scores[0]),) * 3
        if cost[best] == np.inf:
            return 0.0, 0.0, self.scale
        return float(candidates[best]), float(low_mean[best] + centre), float(high_mean[best] + centre)

    def _verdict(self, score: float, threshold: float, mu_undesired: float, mu_desired: float) -> Verdict:
        if self.options.reliable == "threshold":
            mu_undesired = mu_desired = threshold
        if score >= threshold:
            return Verdict.RELIABLE_DESIRED if score > mu_desired else Verdict.UNRELIABLE_DESIRED
        return Verdict.RELIABLE_UNDESIRED if score < mu_undesired else Verdict.UNRELIABLE_UNDESIRED
