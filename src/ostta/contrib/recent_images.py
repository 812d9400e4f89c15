"""Analyse a window of recent images: which are known and which unknown.

Each analysis starts from the window alone, so earlier results cannot reinforce themselves. Features are centred by the
mean m of the window and normalised again, which removes the component that all images of the domain share. All
quantities below use centred features; z are the cosines of the images to the classes.

    fit_i       = max_c z_ic                                       the best class
    gap_i       = near(i, core) - near(i, lowest)                  near: mean of the five largest cosines to a bank
    score_i     = (fit_i - threshold) / distance of its groups + weight * gap_i, in units of a core gap

`core` has the best images of each class, `lowest` the images with the lowest scores. In four rounds, the scores select
the banks and the banks give new scores. In the last round the weight depends on how clearly the gaps form two groups:
if they do not, the gaps have little weight. The final scores are shifted and scaled: 0 is the threshold between the two
groups, 1 the distance between their means.

    contrast_i  = near(i, upper half) - near(i, sure)              in units of the contrast of the upper half
    margin      = how far the best class stands out in the worst-fitting quarter, minus the value expected by chance;
                  images with contrast < 0 are excluded if they are far from the known images

    groups      = 2 if the images of a class clearly form two groups (`two_groups`), otherwise 1

`sure` has the lowest images that are similar to each other, dissimilar to the upper half, and fit no class better than
by chance. This excludes difficult known images; without unknown images `sure` is almost empty. The model of chance is
independent normal cosines to the classes; unknown images fit hardly better than that.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..core.otsu import explained_share, otsu_split
from ..scores.window import Floats, Singles
from .two_groups import Places, in_two_groups

CORE = 5  # number of best images of each class
LOWEST = 3 / 32  # share of the window in the bank of lowest scores
ROUNDS = 4
# Weight of the neighbours in all rounds but the last, and its minimum and maximum in the last round.
TRAINING_WEIGHT, WEIGHTS = 1.0, (0.1, 4.0)
# Explained variance of the gaps at which these two are reached. A split of a Gaussian explains 0.64, of a uniform 0.75.
EXPLAINED = (0.74, 0.84)
# An image in `lowest` is clearly unknown if its negative contrast exceeds this fraction of the contrast of known
# images. The first value applies to images that fit their best class only by chance.
SURE = (0.45, 0.7)
# Negative contrasts between which the weight of clearly unknown images in the margin falls from 1 to 0.
FAR = (0.55, 0.65)
CHANCE = 0.25  # share of the window that is compared with chance
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Banks:
    """Centred features of the reference images, and the units of the comparison."""

    core: Singles
    lowest: Singles
    unit: float
    weight: float
    upper: Singles
    upper_unit: float
    sure: Singles | None
    two_groups: bool


@dataclass(frozen=True, slots=True)
class ImageResults:
    """Results for images: fit, score, contrast, and similarity to known and unknown images."""

    fit: Floats
    score: Floats
    contrast: Floats
    known: Floats | None = None
    unknown: Floats | None = None


@dataclass(frozen=True, slots=True)
class RecentImages:
    """Result of the analysis of one window."""

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
        """Number of groups that the images of a class form: 2 if the groups are clear, otherwise 1."""
        return 1 if self.banks is None or not self.banks.two_groups else 2

    @classmethod
    def of(cls, rows: Singles, cosines: Floats, nearest: int) -> RecentImages:
        """Analyse a window, given its unit features [N, D] and their cosines [N, C] to the classes."""
        mean, mean_cosines = rows.mean(0), cosines.mean(0)
        centred, own = _centred(rows, cosines, mean, mean_cosines)
        fit = own.max(1)
        cut, low, high = otsu_split(fit)
        distance = max(high - low, TINY)
        plain = (fit - cut) / distance
        # Images that fit their best class no better than the median image without a class.
        by_chance = fit < chance_peak(own.shape[1], 0.5) * np.sqrt((own**2).mean(1))
        banks, scores, contrast = _banks(centred, plain, own.argmax(1), by_chance, nearest)
        zero, low, high = otsu_split(scores)
        size, margin = max(high - low, TINY), _margin_with(contrast, own, fit)
        return cls(mean, mean_cosines, cut, distance, zero, size, margin, banks, nearest)

    def judge(self, rows: Singles, cosines: Floats) -> ImageResults:
        """Compare images with the window; they need not be in it."""
        centred, own = _centred(rows, cosines, self.mean, self.mean_cosines)
        fit: Floats = own.max(1)
        scores, banks = (fit - self.cut) / self.distance, self.banks
        if banks is None:
            return ImageResults(fit, (scores - self.zero) / self.size, np.ones(len(rows)))
        known, unknown = (near(centred, bank, self.nearest) for bank in (banks.core, banks.lowest))
        scores = scores + banks.weight * (known - unknown) / banks.unit
        return ImageResults(
            fit, (scores - self.zero) / self.size, _contrast(centred, banks, self.nearest), known, unknown
        )


def near(rows: Singles, bank: Singles, nearest: int) -> Floats:
    """Return the mean of the largest cosines of each row to a bank."""
    return _largest(rows @ bank.T, nearest)


def _banks(
    centred: Singles, plain: Floats, best: Places, by_chance: NDArray[np.bool_], nearest: int
) -> tuple[Banks | None, Floats, Floats]:
    """Return the banks of a window, and the scores and contrasts of its images; None if there are too few images."""
    total = len(centred)
    count, scores, contrasts = max(nearest + 1, int(total * LOWEST)), plain, np.ones(total)
    if total < 4 * nearest:
        return None, plain, contrasts
    for number in range(ROUNDS):
        lowest, core = np.argsort(scores)[:count], _best_of_each(scores, best)
        if len(core) <= nearest:
            return None, plain, contrasts
        gap = _near_members(centred, core, nearest) - _near_members(centred, lowest, nearest)
        unit = max(float(gap[core].mean()), TINY)
        weight = TRAINING_WEIGHT if number < ROUNDS - 1 else _weight(gap)
        scores = plain + weight * gap / unit
    two_groups = in_two_groups(centred, scores, gap, best, nearest)
    order = np.argsort(scores)
    # The upper half, restricted to scores above the threshold: if most images are unknown, fewer than half are known.
    upper = order[max(total // 2, int((scores < otsu_split(scores).threshold).sum())) :]
    near_upper = _near_members(centred, upper, nearest)
    candidates = order[: max(count, 3 * nearest)]
    contrast = near_upper - _near_members(centred, candidates, nearest)
    upper_unit = max(float(np.median(contrast[upper])), TINY)
    # Images that fit a class better than by chance need a stronger contrast and more similar images, because a few
    # difficult known images can look alike.
    sure_by = np.where(by_chance[candidates], SURE[0], SURE[1])
    places = candidates[-contrast[candidates] > sure_by * upper_unit]
    sure = None
    if len(places) >= 2 * nearest or by_chance[places].sum() > nearest:
        sure, contrasts = centred[places], (near_upper - _near_members(centred, places, nearest)) / upper_unit
    banks = Banks(centred[core], centred[lowest], unit, weight, centred[upper], upper_unit, sure, two_groups)
    return banks, scores, contrasts


def _near_members(centred: Singles, places: Places, nearest: int) -> Floats:
    """Return the similarity of all images to those at `places`. An image is not its own neighbour."""
    similarity = near(centred, centred[places], nearest)
    similarity[places] = _near_others(centred[places], nearest)
    return similarity


def _contrast(centred: Singles, banks: Banks, nearest: int) -> Floats:
    if banks.sure is None:
        return np.ones(len(centred))
    return (near(centred, banks.upper, nearest) - near(centred, banks.sure, nearest)) / banks.upper_unit


def _centred(rows: Singles, cosines: Floats, mean: Singles, mean_cosines: Floats) -> tuple[Singles, Floats]:
    left = rows - mean
    lengths = np.linalg.norm(left, axis=1, keepdims=True) + 1e-12
    return left / lengths, (cosines - mean_cosines) / lengths


def _best_of_each(scores: Floats, best: Places) -> Places:
    """Return the highest scores of each class among those above the mean of the upper group."""
    above = np.argsort(-scores)[: int((scores > otsu_split(scores).high).sum())]
    counts = Counter[int]()
    chosen = []
    for place in above:
        label = int(best[place])
        counts[label] += 1
        if counts[label] <= CORE:
            chosen.append(place)
    return np.array(chosen, dtype=np.intp)


def _weight(gap: Floats) -> float:
    low, high = EXPLAINED
    part = float(np.clip((explained_share(gap) - low) / (high - low), 0, 1))
    return WEIGHTS[0] + (WEIGHTS[1] - WEIGHTS[0]) * part


def _margin_with(contrast: Floats, cosines: Floats, fit: Floats) -> float:
    """Return the margin of all images.

    Clearly unknown images have less weight the farther they are from the known images: their contrast already
    identifies them, so the margin describes the other images. It rarely identifies unknown images near known ones.
    """
    margin, unknown = _margin(cosines, fit), contrast < 0
    if not unknown.any() or unknown.all():
        return margin
    low, high = FAR
    part = float(np.clip((-float(np.median(contrast[unknown])) - low) / (high - low), 0, 1))
    return margin if part == 0 else margin + part * (_margin(cosines[~unknown], fit[~unknown]) - margin)


def _margin(cosines: Floats, fit: Floats) -> float:
    """Return how far the best cosine of an image stands out, above chance, in the worst-fitting part of the window."""
    worst = np.argsort(fit)[: max(1, int(len(fit) * CHANCE))]
    peak = float(fit[worst].mean() / np.sqrt((cosines[worst] ** 2).mean() + 1e-18))
    return peak - chance_peak(cosines.shape[1])


@cache
def chance_peak(classes: int, part: float = CHANCE) -> float:
    """Return the value expected by chance in the worst part: independent normal cosines, an image without a class.

    >>> round(chance_peak(10), 2), round(chance_peak(10, 0.5), 2)
    (0.98, 1.21)
    """
    x = np.linspace(-6, 8, 4001)
    below = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    # Distribution of the maximum, given that it is in the lowest part of all maxima.
    chance = np.diff(np.minimum(below**classes, part), prepend=0.0) / part
    # Mean square of the other cosines, which are all below the maximum.
    others = 1 - x * density / np.maximum(below, 1e-300)
    square = (chance * (x * x + (classes - 1) * others)).sum() / classes
    return float((chance * x).sum() / math.sqrt(square))


def _near_others(bank: Singles, nearest: int) -> Floats:
    among = bank @ bank.T
    np.fill_diagonal(among, -9)
    return _largest(among, min(nearest, len(bank) - 1))


def _largest(cosines: Singles, nearest: int) -> Floats:
    few = min(nearest, cosines.shape[1])
    means: Floats = np.partition(cosines, -few, 1)[:, -few:].mean(1).astype(np.float64)
    return means
