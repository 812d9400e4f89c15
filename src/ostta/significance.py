"""When a difference may be marked: the chance of it where there is none, over images or over seeds, and Holm's correction for many.

Over images, the spread of the resamples of `ostta.intervals` is taken for that of a normal distribution: a thousand resamples
cannot tell a chance of 0.001 from one of 0.00001, and a table of two hundred differences needs that. What no paired test could
say from so few images is not said here either: where two runs differ on n images, a fair coin for each of them gives the whole
difference to one side with the chance 2 / 2^n, and no chance below that is returned.

Over seeds, it is Student's t of the differences seed by seed, for seeds that draw images of their own. Seeds that only order the
same images anew share the luck of these images, and their spread does not show it: there is no chance to be had from them.

>>> holm([0.01, 0.04, 0.03])
[0.03, 0.06, 0.06]
>>> over_seeds([1.0, 2.0, 3.0])[0]
Interval(+2.00 [-0.48, +4.48])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .core.types import Error
from .intervals import LEVEL, Interval, Values

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
    """The two-sided chance of a difference, from `Resampling.values` of one side minus those of the other.

    `changed` is the number of images on which the two sides differ at all.

    >>> round(over_images(np.array([2.0, 1.0, 2.0, 3.0]), 100), 4)
    0.0455
    >>> over_images(np.array([2.0, 1.0, 2.0, 3.0]), 3)
    0.25
    """
    known = resampled[1:][np.isfinite(resampled[1:])]
    difference = float(resampled[0])
    if len(known) < 2 or not math.isfinite(difference):
        raise Error("A chance needs a difference, and at least two resamples of it.")
    if difference == 0 or changed == 0:
        return 1.0
    spread = float(np.std(known, ddof=1))
    normal = math.erfc(abs(difference) / spread / math.sqrt(2)) if spread > 0 else 0.0
    return min(1.0, max(normal, 2.0 ** (1 - changed)))


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
