"""What a window of recent images tells about known and unknown: made anew from the window each time, so that nothing confirms itself.

Features are centred by the window's mean m and made unit again: what the domain gives to every image goes away. With the
cosines z of the images to the classes, all numbers below are of centred features.

    fit_i       = max_c z_ic                                       the best class
    gap_i       = near(i, core) - near(i, lowest)                  near: mean of the five largest cosines to a bank
    score_i     = fit_i, less its cut, by the distance of its two groups  +  weight * gap_i, in units of a core image's gap

`core` has the best images of each class, `lowest` the images with the lowest scores; four rounds, in which scores make banks and banks
make scores. In the last one the weight depends on how clearly the gaps fall into two groups: with nothing to tell apart, they
hardly count. Then the scores are shifted and scaled once more: 0 is the cut between the two groups, 1 the distance of their means.

    contrast_i  = near(i, upper half) - near(i, sure)              in units of the upper half's own
    margin      = how far the best class stands out in the worst-fitting quarter, less what it would by chance;
                  without the images of contrast < 0, where these lie far from the known ones

    groups      = 2 where the images of a class are clearly of two kinds (`two_groups`), else 1

`sure` has those of the lowest images that lie among themselves and not among the upper half, and that fit no class better than by
chance: hard known images drop out of it, and without unknown images it stays nearly empty. By chance, the cosines to the classes are
independent and normal; unknown images fit hardly better than that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..core.otsu import explained_share, otsu_split
from .two_groups import in_two_groups

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Places = NDArray[np.intp]

CORE = 5  # the best images of each class
LOWEST = 3 / 32  # the share of the window in the bank of lowest scores
ROUNDS = 4
# The weight of the neighbours in all rounds but the last, and its least and most in the last ...
TRAINING_WEIGHT, WEIGHTS = 1.0, (0.1, 4.0)
# ... reached where a cut in two explains so much of the gaps' variance: 0.64 of a Gaussian's, 0.75 of a uniform one's.
EXPLAINED = (0.74, 0.84)
# An image of the lowest is surely unknown if its contrast, below 0, is this part of a known image's: the first where it fits its
# best class by chance only.
SURE = (0.45, 0.7)
# The contrast, below 0, from which images among the surely unknown begin to leave the margin, and have left.
FAR = (0.55, 0.65)
CHANCE = 0.25  # the part of the window that is compared with chance
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Banks:
    """Centred features of the images that others are compared with, and the units of the comparison."""

    core: Singles
    lowest: Singles
    unit: float
    weight: float
    upper: Singles
    upper_unit: float
    sure: Singles | None
    two_groups: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """What is found about images: how they fit, the score, the contrast, and how near they are to known and unknown images."""

    fit: Floats
    score: Floats
    contrast: Floats
    known: Floats | None = None
    unknown: Floats | None = None


@dataclass(frozen=True, slots=True)
class RecentImages:
    """What one look at a window has found."""

    mean: Singles
    mean_cosines: Floats
    cut: float
    distance: float
    zero: float
    size: float
    margin: float
    banks: Banks | None
    nearest: int

    @property
    def groups(self) -> int:
        """Of how many kinds the images of a class are: 2 where that is clear."""
        return 1 if self.banks is None or not self.banks.two_groups else 2

    @classmethod
    def of(cls, rows: Singles, cosines: Floats, nearest: int) -> RecentImages:
        """From the unit features [N, D] of a window and their cosines [N, C] to the classes."""
        mean, mean_cosines = rows.mean(0), cosines.mean(0)
        centred, own = _centred(rows, cosines, mean, mean_cosines)
        fit = own.max(1)
        cut, low, high = otsu_split(fit)
        distance = max(high - low, TINY)
        plain = (fit - cut) / distance
        # Images that fit their best class no better than the worse half of images of no class.
        by_chance = fit < chance_peak(own.shape[1], 0.5) * np.sqrt((own**2).mean(1))
        banks, scores, contrast = _banks(centred, plain, own.argmax(1), by_chance, nearest)
        zero, low, high = otsu_split(scores)
        size, margin = max(high - low, TINY), _margin_with(contrast, own, fit)
        return cls(mean, mean_cosines, cut, distance, zero, size, margin, banks, nearest)

    def judge(self, rows: Singles, cosines: Floats) -> Judged:
        """What the window says of images, which need not be in it."""
        centred, own = _centred(rows, cosines, self.mean, self.mean_cosines)
        fit: Floats = own.max(1)
        scores, banks = (fit - self.cut) / self.distance, self.banks
        if banks is None:
            return Judged(fit, (scores - self.zero) / self.size, np.ones(len(rows)))
        known, unknown = (near(centred, bank, self.nearest) for bank in (banks.core, banks.lowest))
        scores = scores + banks.weight * (known - unknown) / banks.unit
        return Judged(fit, (scores - self.zero) / self.size, _contrast(centred, banks, self.nearest), known, unknown)


def near(rows: Singles, bank: Singles, nearest: int) -> Floats:
    """The mean of the largest cosines of each row to a bank."""
    return _largest(rows @ bank.T, nearest)


def _banks(
    centred: Singles, plain: Floats, best: Places, by_chance: NDArray[np.bool_], nearest: int
) -> tuple[Banks | None, Floats, Floats]:
    """The banks of a window, and scores and contrasts of its images; None where there are too few images for neighbours."""
    total = len(centred)
    count, scores, apart = max(nearest + 1, int(total * LOWEST)), plain, np.ones(total)
    if total < 4 * nearest:
        return None, plain, apart
    for number in range(ROUNDS):
        lowest, core = np.argsort(scores)[:count], _best_of_each(scores, best)
        if len(core) <= nearest:
            return None, plain, apart
        gap = _near_members(centred, core, nearest) - _near_members(centred, lowest, nearest)
        unit = max(float(gap[core].mean()), TINY)
        weight = TRAINING_WEIGHT if number < ROUNDS - 1 else _weight(gap)
        scores = plain + weight * gap / unit
    two = in_two_groups(centred, scores, gap, best, nearest)
    order = np.argsort(scores)
    # The upper half, and none below the cut: where most images are unknown, fewer than half are known.
    upper, last = (
        order[max(total // 2, int((scores < otsu_split(scores)[0]).sum())) :],
        order[: max(count, 3 * nearest)],
    )
    near_upper = _near_members(centred, upper, nearest)
    contrast = near_upper - _near_members(centred, last, nearest)
    upper_unit = max(float(np.median(contrast[upper])), TINY)
    # One that fits a class better than by chance must lie clearer apart, and in more company: a few hard known images may.
    sure_by = np.where(by_chance[last], SURE[0], SURE[1])
    places = last[-contrast[last] > sure_by * upper_unit]
    sure = None
    if len(places) >= 2 * nearest or by_chance[places].sum() > nearest:
        sure, apart = centred[places], (near_upper - _near_members(centred, places, nearest)) / upper_unit
    return Banks(centred[core], centred[lowest], unit, weight, centred[upper], upper_unit, sure, two), scores, apart


def _near_members(centred: Singles, places: Places, nearest: int) -> Floats:
    """How near all images are to some of them. Nobody is a neighbour of oneself."""
    found = near(centred, centred[places], nearest)
    found[places] = _near_others(centred[places], nearest)
    return found


def _contrast(centred: Singles, banks: Banks, nearest: int) -> Floats:
    if banks.sure is None:
        return np.ones(len(centred))
    return (near(centred, banks.upper, nearest) - near(centred, banks.sure, nearest)) / banks.upper_unit


def _centred(rows: Singles, cosines: Floats, mean: Singles, mean_cosines: Floats) -> tuple[Singles, Floats]:
    left = rows - mean
    lengths = np.linalg.norm(left, axis=1, keepdims=True) + 1e-12
    return left / lengths, (cosines - mean_cosines) / lengths


def _best_of_each(scores: Floats, best: Places) -> Places:
    """The highest scores of each class among those above the mean of the upper group."""
    above = np.argsort(-scores)[: int((scores > otsu_split(scores)[2]).sum())]
    seen: dict[int, int] = {}
    chosen = []
    for place in above:
        label = int(best[place])
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= CORE:
            chosen.append(place)
    return np.array(chosen, dtype=np.intp)


def _weight(gap: Floats) -> float:
    low, high = EXPLAINED
    part = float(np.clip((explained_share(gap) - low) / (high - low), 0, 1))
    return WEIGHTS[0] + (WEIGHTS[1] - WEIGHTS[0]) * part


def _margin_with(contrast: Floats, cosines: Floats, fit: Floats) -> float:
    """The margin of all images. The farther those among the surely unknown lie from the known, the less they count in it.

    Far unknown images are found by their contrast; the margin is then about the rest. Near ones mostly are not.
    """
    margin, among = _margin(cosines, fit), contrast < 0
    if not among.any() or among.all():
        return margin
    low, high = FAR
    part = float(np.clip((-float(np.median(contrast[among])) - low) / (high - low), 0, 1))
    return margin if part == 0 else margin + part * (_margin(cosines[~among], fit[~among]) - margin)


def _margin(cosines: Floats, fit: Floats) -> float:
    """How far the best cosine stands out among an image's cosines, in the worst-fitting part of the window, above chance."""
    worst = np.argsort(fit)[: max(1, int(len(fit) * CHANCE))]
    peak = float(fit[worst].mean() / np.sqrt((cosines[worst] ** 2).mean() + 1e-18))
    return peak - chance_peak(cosines.shape[1])


@cache
def chance_peak(classes: int, part: float = CHANCE) -> float:
    """The same of the worst part where the cosines to the classes are independent and normal: an image of no class.

    >>> round(chance_peak(10), 2), round(chance_peak(10, 0.5), 2)
    (0.98, 1.21)
    """
    x = np.linspace(-6, 8, 4001)
    below = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    # The law of the largest of them, if it is among the lowest part of all largest ones.
    chance = np.diff(np.minimum(below**classes, part), prepend=0.0) / part
    # Mean square of the others, which are all below the largest.
    others = 1 - x * density / np.maximum(below, 1e-300)
    square = (chance * (x * x + (classes - 1) * others)).sum() / classes
    return float((chance * x).sum() / math.sqrt(square))


def _near_others(bank: Singles, nearest: int) -> Floats:
    among = bank @ bank.T
    np.fill_diagonal(among, -9)
    return _largest(among, min(nearest, len(bank) - 1))


def _largest(cosines: Singles, nearest: int) -> Floats:
    few = min(nearest, cosines.shape[1])
    found: Floats = np.partition(cosines, -few, 1)[:, -few:].mean(1).astype(np.float64)
    return found
