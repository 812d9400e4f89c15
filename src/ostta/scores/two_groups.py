"""Two groups in a window of recent images: those that are reliably known, and those that are reliably unknown.

    match_i  = max_c (z_ic - centre_c) / sd_c      the best class, each class measured by its own cosines in the window
    gap_i    = mean of the five largest f_i.f_j over known j  -  the same over unknown j
    w_i      = match_i / sd(match) + weight (gap_i - mean gap) / sd(gap)

The first groups are the ends of `match`; then, three times, the ends of w. A group's end is what lies beyond its mean when the numbers
are cut in two. Both sds are inside the groups, so that nothing depends on the scale of cosines. The weight grows with how far apart the
neighbours set the groups, beyond what any cut in two would: with little to say, they get little weight.

Everything is found anew from the window each time, so that no verdict of earlier confirms itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ..core.cuts import cut_in_two

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDS = 3
LEAST_WEIGHT, MOST_WEIGHT = 0.5, 2.0
# How far apart the halves of one Gaussian are, in sds inside the halves: what is above that is a difference in kind.
HALVES = 2.65
# How far a class's own centre and sd replace the common ones in the score. All the way is worse on near unknowns.
OWN_MEASURE = 0.5
# Where the search for a cloud begins: this share of the window, lowest match first, if their fit is below the other number.
CLOUD_SHARE, CLOUD_FIT = 0.3, 0.8
CLOUD_VOTES = 4
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Measure:
    """Centre and sd of each class's cosines."""

    centre: Floats
    sd: Floats

    @classmethod
    def of(cls, cosines: Floats) -> Measure:
        """From the cosines [N, C] of a window; each class is measured on its own."""
        return cls(np.median(cosines, 0), cosines.std(0) + TINY)

    @classmethod
    def common(cls, cosines: Floats) -> Measure:
        """One centre and one sd for all classes: a few images say too little of each."""
        classes = cosines.shape[1]
        return cls(np.full(classes, np.median(cosines)), np.full(classes, cosines.std() + TINY))

    def drawn(self) -> Measure:
        """Part of the way to the common centre and sd."""
        middle, common = np.median(self.centre), self.sd.mean()
        return Measure(middle + OWN_MEASURE * (self.centre - middle), common * (self.sd / common) ** OWN_MEASURE)

    def match(self, cosines: Floats) -> Floats:
        """The best class in its own measure, for rows of cosines."""
        found: Floats = ((cosines - self.centre) / self.sd).max(-1)
        return found

    def fit(self, cosines: Floats) -> Floats:
        """The chance that an image of no class would match its best class no better, were its cosines normal and independent."""
        chance: Floats = ndtr(self.match(cosines)) ** len(self.centre)
        return chance


@dataclass(frozen=True, slots=True)
class Groups:
    """What one fit has found: who is reliably known and unknown, and how to weigh match and neighbours."""

    known: Bools
    unknown: Bools
    gap: float
    gap_sd: float
    match_sd: float
    weight: float

    def score(self, match: Floats | float, gap: Floats | float) -> Floats | float:
        return match / self.match_sd + self.weight * (gap - self.gap) / self.gap_sd


def nearest_mean(cosines: Floats, nearest: int) -> Floats:
    """The mean of the largest cosines in each row."""
    found: Floats = np.partition(cosines, -nearest, axis=-1)[..., -nearest:].mean(-1)
    return found


def likenesses(rows: NDArray[np.float32]) -> Floats:
    """The cosines among the images of a window, -2 on the diagonal: no image is its own neighbour."""
    among: Floats = (rows @ rows.T).astype(np.float64)
    np.fill_diagonal(among, -2)
    return among


def find_groups(cosines: Floats, among: Floats, measure: Measure, nearest: int) -> Groups | None:
    """The groups of a window; None where one of them is too small for its images to have neighbours."""
    match, found = measure.drawn().match(cosines), None
    scores: Floats = measure.match(cosines)
    for _ in range(ROUNDS):
        cut, low, high = cut_in_two(scores)
        known, unknown, upper = scores > high, scores < low, scores >= cut
        if min(known.sum(), unknown.sum()) < 2 * nearest:
            break
        gap = nearest_mean(among[:, known], nearest) - nearest_mean(among[:, unknown], nearest)
        gap_sd = _inside(gap, upper)
        apart = float(gap[upper].mean() - gap[~upper].mean()) / gap_sd
        weight = float(np.clip(LEAST_WEIGHT + apart - HALVES, LEAST_WEIGHT, MOST_WEIGHT))
        found = Groups(known, unknown, float(gap.mean()), gap_sd, _inside(match, upper), weight)
        scores = np.asarray(found.score(match, gap))
    return found


def find_cloud(cosines: Floats, among: Floats, measure: Measure, nearest: int) -> Bools:
    """Images that fit no class and lie among their like.

    It begins with the images that fit worst. Then each image belongs to it if most of its nearest ones do: hard known images lie among
    known ones and drop out, unknown images of one kind stay, and draw in those of their like that fit some class by chance.
    """
    match = measure.match(cosines)
    cloud: Bools = (match < np.quantile(match, CLOUD_SHARE)) & (measure.fit(cosines) < CLOUD_FIT)
    near = np.argpartition(among, -nearest, 1)[:, -nearest:]
    for _ in range(CLOUD_VOTES):
        cloud = cloud[near].mean(1) > 0.5
    return cloud


def _inside(values: Floats, upper: Bools) -> float:
    """The sd inside two groups, both counted alike."""
    return float(np.sqrt((values[upper].var() + values[~upper].var()) / 2)) + TINY
