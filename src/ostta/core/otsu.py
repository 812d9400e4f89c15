"""Otsu's threshold: split numbers into the two groups with the smallest variance within groups.

Prefix sums of the sorted numbers give the count and sum of both groups for all candidates, so a search takes a few
array operations.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.intp]


class OtsuThreshold(NamedTuple):
    """A threshold, and the means of the numbers below and above it."""

    threshold: float
    low: float
    high: float


def otsu_split(values: Floats) -> OtsuThreshold:
    """Split numbers by exact search; threshold and means are one number if all values are equal.

    >>> otsu_split(np.array([0.3, 0.1, 0.9, 1.1]))
    OtsuThreshold(threshold=0.6, low=0.2, high=1.0)
    """
    ordered = np.sort(values)
    return exact_split(ordered) or OtsuThreshold(*(float(ordered[0]),) * 3)


def explained_share(values: Floats) -> float:
    """Return the share of the variance between the two groups: 2/pi for a Gaussian, 3/4 for a uniform distribution.

    >>> round(explained_share(np.array([0.1, 0.3, 0.9, 1.1])), 2)
    0.94
    """
    split = otsu_split(values)
    upper = float((values > split.threshold).mean())
    spread = float(values.var())
    return upper * (1 - upper) * (split.high - split.low) ** 2 / spread if spread > 0 else 0.0


def exact_split(ordered: Floats, weighted: bool = True) -> OtsuThreshold | None:
    """Search all gaps between sorted numbers; None if all are equal."""
    below = np.arange(1, len(ordered))
    cost, _, _ = _groups(ordered, below, below, weighted)
    cost[ordered[1:] == ordered[:-1]] = np.inf
    if not len(cost) or cost[best := int(cost.argmin())] == np.inf:
        return None
    lower, upper = ordered[: best + 1], ordered[best + 1 :]
    # Computed from the numbers, not from sums: the mean of a single number is exactly that number.
    return OtsuThreshold(float(lower[-1] + upper[0]) * 0.5, float(lower.mean()), float(upper.mean()))


def grid_split(
    ordered: Floats,
    candidates: Floats,
    weighted: bool = True,
    equal_counts: Literal["above", "below", "nowhere"] = "above",
) -> OtsuThreshold | None:
    """Search the candidates of a grid; None if no candidate has sorted numbers on both sides.

    `equal_counts` says to which group a number equal to the candidate belongs.
    """
    below: Counts = ordered.searchsorted(candidates, "right" if equal_counts == "below" else "left")
    above: Counts = ordered.searchsorted(candidates, "right") if equal_counts == "nowhere" else below
    # Both counts grow along the grid, so the candidates with numbers on both sides form one slice of it.
    start, stop = int(below.searchsorted(1)), int(above.searchsorted(len(ordered)))
    if start >= stop:
        return None
    cost, low, high = _groups(ordered, below[start:stop], above[start:stop], weighted, one_split=above is below)
    best = int(cost.argmin())
    return OtsuThreshold(float(candidates[start + best]), float(low[best]), float(high[best]))


def _groups(
    ordered: Floats, below: Counts, above: Counts, weighted: bool, one_split: bool = True
) -> tuple[Floats, Floats, Floats]:
    """Return the cost and both means for each candidate.

    `below` is the number of values in the lower group, `above` the number of values outside the upper group.
    """
    total = len(ordered)
    # Centred numbers keep the differences of sums accurate.
    centre = ordered[total // 2]
    centred = ordered - centre
    sums = np.zeros(total + 1)
    centred.cumsum(out=sums[1:])
    low, high = sums[below], sums[-1] - sums[above]
    low_mean, high_mean = low / below, high / (total - above)
    # The variance within groups is the sum of squares minus the part explained by the means. The sum of squares is the
    # same for all candidates if every number belongs to a group.
    cost = -(low * low_mean + high * high_mean)
    if not weighted or not one_split:
        squares = np.zeros(total + 1)
        (centred * centred).cumsum(out=squares[1:])
        low_square = squares[below] - low * low_mean
        high_square = squares[-1] - squares[above] - high * high_mean
        cost = low_square + high_square if weighted else low_square / below + high_square / (total - above)
    return cost, low_mean + centre, high_mean + centre
