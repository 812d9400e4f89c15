"""Whether a difference is significant: p-values over images and seeds, and Holm's correction for many comparisons.

With one seed, the resamples of `ostta.evaluation.intervals` are approximated by a normal distribution, because a thousand resamples cannot
distinguish p = 0.001 from p = 0.00001, which a table of two hundred differences needs. With several seeds the test is Student's t
with the nested variance of `ostta.evaluation.intervals.SeedSpread`. No p-value is below the smallest one that a sign test could give: if two
runs differ on n images, that is 2 / 2^n.

`over_seeds` is for seeds that draw images but kept no records. Seeds that only reorder the same images are not independent samples
of images, so no p-value is computed from their differences alone.

>>> holm([0.01, 0.04, 0.03])
[0.03, 0.06, 0.06]
>>> over_seeds([1.0, 2.0, 3.0])[0]
Interval(+2.00 [-0.48, +4.48])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.types import Error
from .intervals import LEVEL, Interval, SeedSpread, Values

# What a chance, corrected for the number of comparisons, must be below.
ALPHA = 1 - LEVEL


def holm(chances: Sequence[float]) -> list[float]:
    """Each chance as it counts among all of them, in the same order: below 0.05 means that the difference may be marked.

    >>> holm([0.02, 0.02])
    [0.04, 0.04]
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    adjusted, highest = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = highest
    return adjusted


def over_images(resampled: Values, changed: int) -> float:
    """The two-sided p-value of a difference, from `Resampling.values` of one side minus those of the other.

    For several seeds `resampled` has one row a seed (`Resampling.values_by_run`). `changed` is the number of images on which the two
    sides differ at all.

    >>> round(over_images(np.array([2.0, 1.0, 2.0, 3.0]), 100), 4)
    0.0455
    >>> over_images(np.array([2.0, 1.0, 2.0, 3.0]), 3)
    0.25
    """
    rows = np.atleast_2d(resampled)
    means = rows.mean(axis=0)
    difference, finite = float(means[0]), means[1:][np.isfinite(means[1:])]
    if len(finite) < 2 or not math.isfinite(difference):
        raise Error("A p-value needs a difference, and at least two resamples of it.")
    if difference == 0 or changed == 0:
        return 1.0
    if len(rows) > 1:
        found = SeedSpread.of(rows).p_value()
    else:
        error = float(np.std(finite, ddof=1))
        found = math.erfc(abs(difference) / error / math.sqrt(2)) if error > 0 else 0.0
    return min(1.0, max(found, 2.0 ** (1 - changed)))


def over_seeds(differences: Sequence[float], level: float = LEVEL) -> tuple[Interval, float] | None:
    """The interval of the mean of differences, one a seed, and its two-sided chance, by Student's t.

    None for a single seed, and where all differences are equal: the seeds then show no spread to judge by.

    >>> interval, chance = over_seeds([1.0, 2.0, 3.0])
    >>> round(chance, 4)
    0.0742
    >>> over_seeds([1.0]) is over_seeds([1.0, 1.0]) is None
    True
    """
    from scipy.stats import t

    count = len(differences)
    error = float(np.std(differences, ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    if error == 0:
        return None
    mean = float(np.mean(differences))
    half = float(t.ppf((1 + level) / 2, count - 1)) * error
    return Interval(mean, mean - half, mean + half, level), float(2 * t.sf(abs(mean) / error, count - 1))
