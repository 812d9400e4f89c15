"""Confidence intervals of the difference between two runs on the same images.

A bootstrap over images: a resample draws images with replacement, desired and undesired images and each data set separately, and
both runs are measured on the same drawn images. An image that several seeds show has the same weight in all of them, so seeds that
only reorder the same images do not make an interval narrower.

What an interval covers depends on the number of seeds:

- **One seed.** The percentile interval of the resamples. The answers of both runs stay as they were recorded, so the interval
  covers the choice of the images on which the figure is computed, and nothing else. A method that remembers earlier images would
  have answered differently after other images or in another order. The interval does not cover this, and for such a method it is
  too narrow as a statement about another stream; `python -m benchmarks.coverage` measures by how much.
- **Several seeds.** A nested interval (`SeedSpread`): the variance between the seeds is added to the variance over the images that
  the seeds share, with Student's t. It covers other images and other seeds. If the seeds draw images (`draw="images"`), these are
  other streams of the same kind; if the seeds only reorder the same images, these are other orders.

>>> labels, scores = [0, 0, 1, -1, -1, -1], [0.9, 0.7, 0.8, 0.2, 0.3, 0.75]
>>> one = Outcomes.of(labels, scores, [True] * 3 + [False] * 3, [0, 0, 1, 0, 0, 0])
>>> other = Outcomes.of(labels, scores, [True] * 6, [0, 0, 1, 0, 0, 0])
>>> paired_difference([one], [other], "acc_undesired")
Interval(+100.00 [+100.00, +100.00], excludes zero)
>>> paired_difference([one], [one], "hm").excludes_zero
False
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Error
from .weighted_figures import FIGURES, Shown
from .weighted_figures import Values as Values

RESAMPLES = 1_000
LEVEL = 0.95
# The metrics that an interval can be had for, by the names of `ostta.evaluation.metrics`.
METRICS = tuple(FIGURES)
# Of them, those that depend on all scores and not on answers.
OF_SCORES = ("auroc", "fpr95", "fpr95_strict", "fpr95_undesired")

# An image: its side and data set as one text, and its number there.
Image = tuple[str, int]


@dataclass(frozen=True, repr=False)
class Interval:
    """A difference in percent, and the percentile interval of it."""

    difference: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __repr__(self) -> str:
        sure = ", excludes zero" if self.excludes_zero else ""
        return f"Interval({self.difference:+.2f} [{self.low:+.2f}, {self.high:+.2f}]{sure})"


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What one run said of each image, in any order. Labels are -1 for undesired images.

    `source` and `number` say which image it was; `domain` is the number of its domain.
    """

    labels: NDArray[np.int64]
    scores: Values
    accepted: NDArray[np.bool_]
    index: NDArray[np.int64]
    source: NDArray[Any]
    number: NDArray[np.int64]
    domain: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        scores: ArrayLike,
        accepted: ArrayLike,
        index: ArrayLike,
        source: ArrayLike | None = None,
        number: ArrayLike | None = None,
        domain: ArrayLike | None = None,
    ) -> Outcomes:
        """From columns. Without `number` the images are known by their places: both runs must then have them in the same order.

        >>> len(Outcomes.of([0, -1], [0.9, 0.1], [True, False], [0, 0]).labels)
        2
        """
        own = np.asarray(labels, np.int64)
        count = len(own)
        return cls(
            own,
            np.asarray(scores, np.float64),
            np.asarray(accepted, bool),
            np.asarray(index, np.int64),
            np.full(count, "") if source is None else np.asarray(source, object),
            np.arange(count) if number is None else np.asarray(number, np.int64),
            np.zeros(count, np.int64) if domain is None else np.asarray(domain, np.int64),
        )

    @cached_property
    def images(self) -> list[Image]:
        """The image of each entry."""
        desired = (self.labels >= 0).tolist()
        sides = [f"{'' if side else 'un'}desired:{source}" for side, source in zip(desired, self.source, strict=True)]
        return list(zip(sides, self.number.tolist(), strict=True))


def paired_difference(
    ours: Sequence[Outcomes],
    theirs: Sequence[Outcomes],
    metric: str = "hm",
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
    by_domain: bool = False,
) -> Interval:
    """The mean of `metric` over `ours` minus that over `theirs`, one run a seed on each side, with its interval.

    Runs at the same place must have seen the same images. `by_domain` takes the mean over the domains of a run, as tables do
    with the HM of a continual stream.

    >>> run = Outcomes.of([0, 0, -1], [0.9, 0.7, 0.2], [True, True, False], [0, 1, 0])
    >>> paired_difference([run], [run], "auroc")
    Interval(+0.00 [+0.00, +0.00])
    """
    if not ours or len(ours) != len(theirs):
        raise Error(f"A paired difference needs as many runs on both sides, not {len(ours)} and {len(theirs)}.")
    for one, other in zip(ours, theirs, strict=True):
        if sorted(one.images) != sorted(other.images):
            raise Error("A paired difference needs two runs on the same images; these saw different ones.")
    drawn = Resampling(ours, resamples=resamples, seed=seed)
    values = [drawn.values_by_run(side, metric, by_domain=by_domain) for side in (ours, theirs)]
    return interval(values[0] - values[1], level)


class Resampling:
    """Weights of images in many resamples, shared by all runs on these images: `values` of two runs may be subtracted.

    `runs` has one run for each seed, and for each stream where several are pooled.

    >>> run = Outcomes.of([0, 0, -1], [0.9, 0.7, 0.2], [True, False, False], [0, 1, 0])
    >>> float(Resampling([run]).values([run], "acc_desired")[0])
    50.0
    """

    def __init__(self, runs: Iterable[Outcomes], *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        if resamples < 1:
            raise Error(f"`resamples` is at least 1, not {resamples}.")
        shown = sorted({image for run in runs for image in run.images})
        self._place = {image: place for place, image in enumerate(shown)}
        chance = np.random.Generator(np.random.PCG64(seed))
        # One line an image. The first column is the data as it is: every image once.
        self._weights = np.ones((len(shown), resamples + 1), np.float32)
        start = 0
        for _, members in itertools.groupby(shown, key=lambda image: image[0]):
            end = start + sum(1 for _ in members)
            self._weights[start:end, 1:] = _draws(end - start, resamples, chance)
            start = end

    def values(self, runs: Sequence[Outcomes], metric: str, *, by_domain: bool = False) -> Values:
        """The mean of `metric` over `runs`: of the images as they are, then in each resample; NaN where it does not exist.

        >>> run = Outcomes.of([0, -1], [0.9, 0.2], [True, False], [0, 0])
        >>> Resampling([run], resamples=3).values([run], "hm").tolist()
        [100.0, 100.0, 100.0, 100.0]
        """
        return np.asarray(self.values_by_run(runs, metric, by_domain=by_domain).mean(axis=0))

    def values_by_run(self, runs: Sequence[Outcomes], metric: str, *, by_domain: bool = False) -> Values:
        """As `values`, one row for each run instead of their mean.

        >>> run = Outcomes.of([0, -1], [0.9, 0.2], [True, False], [0, 0])
        >>> Resampling([run], resamples=3).values_by_run([run, run], "hm").shape
        (2, 4)
        """
        if metric not in FIGURES:
            raise Error(f"There is no interval for {metric!r}; there is one for {', '.join(FIGURES)}.")
        return np.stack([self._of_run(run, metric, by_domain) for run in runs])

    def places(self, run: Outcomes) -> NDArray[np.int64]:
        """The number of each entry's image among all that are drawn from; a KeyError for one that is not among them.

        >>> run = Outcomes.of([0, -1], [0.9, 0.2], [True, False], [0, 0])
        >>> Resampling([run]).places(run).tolist()
        [0, 1]
        """
        return np.array([self._place[image] for image in run.images], np.int64)

    def _of_run(self, run: Outcomes, metric: str, by_domain: bool) -> Values:
        own, places = np.unique(self.places(run), return_inverse=True)
        weights = self._weights[own]
        figures = []
        for number in np.unique(run.domain) if by_domain else [None]:
            part = slice(None) if number is None else run.domain == number
            columns: Iterable[Any] = (places, run.labels, run.scores, run.accepted, run.index)
            figures.append(FIGURES[metric](Shown(weights, *(column[part] for column in columns))))
        return np.asarray(np.mean(figures, axis=0))


@dataclass(frozen=True)
class SeedSpread:
    """Standard error of a mean over seeds, and the degrees of freedom of Student's t for it.

    With k seeds, d_j the difference of seed j, v_j its bootstrap variance over images and V the bootstrap variance of the mean over
    seeds, in which an image that several seeds show has one weight:

        between = var(d_1, ..., d_k) / k                      seeds, and the images that only one seed shows
        shared  = max(0, (k V - mean(v_j)) / (k - 1))         images that the seeds have in common
        error   = sqrt(between + shared)
        degrees = (k - 1) ((between + shared) / between)^2    Satterthwaite's approximation

    Seeds with disjoint images have shared = 0, and the interval is Student's over seeds. Seeds that show the same images have
    shared = V, and the spread of the orders is added to the spread over images. sqrt(V) is `error_over_images`: no interval is
    narrower, and no p-value smaller, than the one over images alone.
    """

    mean: float
    error: float
    degrees: float
    error_over_images: float

    @classmethod
    def of(cls, differences: Values) -> SeedSpread:
        """From `Resampling.values_by_run` of one side minus those of the other, with at least two rows.

        >>> SeedSpread.of(np.array([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]))
        SeedSpread(mean=2.0, error=1.0, degrees=1.0, error_over_images=0.0)
        """
        count = len(differences)
        own = float(np.mean(np.nanvar(differences[:, 1:], axis=1, ddof=1)))
        of_mean = float(np.nanvar(differences[:, 1:].mean(axis=0), ddof=1))
        between = float(np.var(differences[:, 0], ddof=1)) / count
        shared = max(0.0, (count * of_mean - own) / (count - 1))
        degrees = (count - 1) * ((between + shared) / between) ** 2 if between > 0 else math.inf
        return cls(float(differences[:, 0].mean()), math.sqrt(between + shared), degrees, math.sqrt(of_mean))

    def interval(self, level: float = LEVEL) -> Interval:
        """The interval of the mean.

        >>> SeedSpread(mean=2.0, error=1.0, degrees=math.inf, error_over_images=0.5).interval()
        Interval(+2.00 [+0.04, +3.96], excludes zero)
        """
        from scipy.stats import norm, t

        upper = (1 + level) / 2
        half = max(float(t.ppf(upper, self.degrees)) * self.error, float(norm.ppf(upper)) * self.error_over_images)
        return Interval(self.mean, self.mean - half, self.mean + half, level)

    def p_value(self) -> float:
        """The two-sided p-value of the mean.

        >>> round(SeedSpread(mean=2.0, error=1.0, degrees=math.inf, error_over_images=0.5).p_value(), 4)
        0.0455
        """
        from scipy.stats import norm, t

        size = abs(self.mean)
        found = [float(2 * t.sf(size / self.error, self.degrees))] if self.error > 0 else []
        found += [float(2 * norm.sf(size / self.error_over_images))] if self.error_over_images > 0 else []
        return max(found, default=0.0 if size > 0 else 1.0)


def interval(differences: Values, level: float = LEVEL) -> Interval:
    """The interval of `Resampling.values` of one side minus those of the other, or of `values_by_run` for several seeds.

    >>> interval(np.array([2.0, 1.0, 2.0, 3.0]))
    Interval(+2.00 [+1.05, +2.95], excludes zero)
    >>> interval(np.array([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]))
    Interval(+2.00 [-10.71, +14.71])
    """
    rows = np.atleast_2d(differences)
    resampled = rows.mean(axis=0)
    if np.isfinite(resampled[1:]).sum() < 2:
        return Interval(float(resampled[0]), float("nan"), float("nan"), level)
    if len(rows) > 1:
        return SeedSpread.of(rows).interval(level)
    low, high = np.nanquantile(resampled[1:], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(resampled[0]), float(low), float(high), level)


def _draws(count: int, resamples: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """How often each of `count` images is drawn, one column a resample."""
    drawn = chance.integers(count, size=(resamples, count)) + count * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count).T
