"""Confidence intervals of the difference between two runs on the same images.

The intervals come from a bootstrap over images. A resample draws images with replacement, separately for desired and
undesired images and for each data set, and both runs are measured on the same images. An image that several seeds show
has the same weight in all of them, so seeds that only reorder the same images do not make an interval narrower.

The coverage of an interval depends on the number of seeds:

- **One seed.** The percentile interval of the resamples. The answers of both runs stay as recorded, so the interval
  covers only the choice of the images on which the figure is computed. A method that remembers earlier images would
  have answered differently after other images or in another order. The interval does not cover this, so for such a
  method it is too narrow as a statement about another stream; `python -m benchmarks.coverage` measures by how much.
- **Several seeds.** A nested interval (`SeedSpread`): the variance between seeds is added to the variance over the
  images that the seeds share, with Student's t. It covers other images and other seeds. If the seeds draw images
  (`draw="images"`), these are other streams of the same kind; if the seeds only reorder the same images, these are
  other orders.

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
from .metrics import FIGURES, Values, WeightedEntries, right_answers

LEVEL = 0.95
# Threshold of p-values after the correction for the number of comparisons.
ALPHA = 1 - LEVEL
# Metrics with an interval, by their names in `ostta.evaluation.metrics`.
METRICS = tuple(FIGURES)
RESAMPLES = 1_000

# Key of an image: its side and data set as one string, and its number there.
Image = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Scores and answers of one run, image by image, in any order. Labels are -1 for undesired images.

    `source` and `number` identify the image; `domain` is the number of its domain.
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
        """Build outcomes from columns. Without `number`, images are identified by position.

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

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each answer is right: the class of a desired image, or the rejection of an undesired image."""
        return right_answers(self.labels, self.accepted, self.index)

    @cached_property
    def images(self) -> list[Image]:
        """Key of the image of each entry."""
        desired = (self.labels >= 0).tolist()
        sides = [f"{'' if side else 'un'}desired:{source}" for side, source in zip(desired, self.source, strict=True)]
        return list(zip(sides, self.number.tolist(), strict=True))


class Resampling:
    """Weights of images in many resamples, shared by all runs, so that `values` of two runs can be subtracted.

    `runs` has one run for each seed, and for each stream if several streams are pooled.

    >>> run = Outcomes.of([0, 0, -1], [0.9, 0.7, 0.2], [True, False, False], [0, 1, 0])
    >>> float(Resampling([run]).values([run], "acc_desired")[0])
    50.0
    """

    def __init__(self, runs: Iterable[Outcomes], *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        if resamples < 1:
            raise Error(f"`resamples` must be at least 1, not {resamples}.", code="option-invalid")
        images = sorted({image for run in runs for image in run.images})
        self._place = {image: place for place, image in enumerate(images)}
        generator = np.random.Generator(np.random.PCG64(seed))
        # One row per image. The first column is the original data: every image once.
        self._weights = np.ones((len(images), resamples + 1), np.float32)
        start = 0
        for _, members in itertools.groupby(images, key=lambda image: image[0]):
            end = start + sum(1 for _ in members)
            self._weights[start:end, 1:] = _draws(end - start, resamples, generator)
            start = end

    def values(self, runs: Sequence[Outcomes], metric: str, *, by_domain: bool = False) -> Values:
        """Return the mean of `metric` over `runs`: for the original images, then for each resample; NaN if undefined.

        >>> run = Outcomes.of([0, -1], [0.9, 0.2], [True, False], [0, 0])
        >>> Resampling([run], resamples=3).values([run], "hm").tolist()
        [100.0, 100.0, 100.0, 100.0]
        """
        return np.asarray(self.values_by_run(runs, metric, by_domain=by_domain).mean(axis=0))

    def values_by_run(self, runs: Sequence[Outcomes], metric: str, *, by_domain: bool = False) -> Values:
        """Return the values of each run, one row per run, instead of their mean.

        >>> run = Outcomes.of([0, -1], [0.9, 0.2], [True, False], [0, 0])
        >>> Resampling([run], resamples=3).values_by_run([run, run], "hm").shape
        (2, 4)
        """
        if metric not in FIGURES:
            raise Error(f"There is no interval for {metric!r}; use one of {', '.join(FIGURES)}.", code="metric-unknown")
        return np.stack([self._of_run(run, metric, by_domain) for run in runs])

    def places(self, run: Outcomes) -> NDArray[np.int64]:
        """Return the row of the image of each entry; raise a KeyError if the resampling does not have an image.

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
            figures.append(FIGURES[metric](WeightedEntries(weights, *(column[part] for column in columns))))
        return np.asarray(np.mean(figures, axis=0))


def _draws(count: int, resamples: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return how often each of `count` images is drawn, one column per resample."""
    drawn = generator.integers(count, size=(resamples, count)) + count * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count).T


@dataclass(frozen=True, repr=False)
class Interval:
    """A difference in percentage points, and its confidence interval."""

    difference: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __repr__(self) -> str:
        note = ", excludes zero" if self.excludes_zero else ""
        return f"Interval({self.difference:+.2f} [{self.low:+.2f}, {self.high:+.2f}]{note})"


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
    """Return the mean of `metric` over `ours` minus that over `theirs`, one run per seed, with its interval.

    Runs at the same position must have the same images. `by_domain` averages over the domains of a run, as tables do
    for the HM of a continual stream.

    >>> run = Outcomes.of([0, 0, -1], [0.9, 0.7, 0.2], [True, True, False], [0, 1, 0])
    >>> paired_difference([run], [run], "auroc")
    Interval(+0.00 [+0.00, +0.00])
    """
    if not ours or len(ours) != len(theirs):
        raise Error(
            f"A paired difference requires the same number of runs on both sides, not {len(ours)} and {len(theirs)}.",
            code="runs-not-paired",
        )
    for one, other in zip(ours, theirs, strict=True):
        if sorted(one.images) != sorted(other.images):
            raise Error("A paired difference requires two runs on the same images.", code="runs-not-paired")
    drawn = Resampling(ours, resamples=resamples, seed=seed)
    values = [drawn.values_by_run(side, metric, by_domain=by_domain) for side in (ours, theirs)]
    return interval(values[0] - values[1], level)


@dataclass(frozen=True)
class SeedSpread:
    """Standard error of a mean over seeds, and the degrees of freedom of Student's t for it.

    With k seeds, d_j the difference of seed j, v_j its bootstrap variance over images and V the bootstrap variance of
    the mean over seeds, in which an image that several seeds show has one weight:

        between = var(d_1, ..., d_k) / k                      seeds, and the images that only one seed shows
        shared  = max(0, (k V - mean(v_j)) / (k - 1))         images that the seeds have in common
        error   = sqrt(between + shared)
        degrees = (k - 1) ((between + shared) / between)^2    Satterthwaite's approximation

    Seeds with disjoint images have shared = 0, and the interval is Student's over seeds. Seeds that show the same
    images have shared = V, and the variance between orders is added to the variance over images. sqrt(V) is
    `error_over_images`: no interval is narrower, and no p-value smaller, than the one over images alone.
    """

    mean: float
    error: float
    degrees: float
    error_over_images: float

    @classmethod
    def of(cls, differences: Values) -> SeedSpread:
        """Compute the spread from the difference of `Resampling.values_by_run` of two sides, with at least two rows.

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
        """Return the interval of the mean.

        >>> SeedSpread(mean=2.0, error=1.0, degrees=math.inf, error_over_images=0.5).interval()
        Interval(+2.00 [+0.04, +3.96], excludes zero)
        """
        from scipy.stats import norm, t

        upper = (1 + level) / 2
        half = max(float(t.ppf(upper, self.degrees)) * self.error, float(norm.ppf(upper)) * self.error_over_images)
        return Interval(self.mean, self.mean - half, self.mean + half, level)

    def p_value(self) -> float:
        """Return the two-sided p-value of the mean.

        >>> round(SeedSpread(mean=2.0, error=1.0, degrees=math.inf, error_over_images=0.5).p_value(), 4)
        0.0455
        """
        from scipy.stats import norm, t

        size = abs(self.mean)
        p_values = [float(2 * t.sf(size / self.error, self.degrees))] if self.error > 0 else []
        p_values += [float(2 * norm.sf(size / self.error_over_images))] if self.error_over_images > 0 else []
        return max(p_values, default=0.0 if size > 0 else 1.0)


def interval(differences: Values, level: float = LEVEL) -> Interval:
    """Return the interval of a difference of `Resampling.values`, or of `values_by_run` for several seeds.

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


# --- p-values ---------------------------------------------------------------------------------------------------------
def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of comparisons (Holm's method), in the same order.

    >>> holm([0.02, 0.02])
    [0.04, 0.04]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def over_images(resampled: Values, changed: int) -> float:
    """Return the two-sided p-value of a difference of `Resampling.values`.

    For several seeds, `resampled` has one row per seed (`Resampling.values_by_run`). `changed` is the number of images
    on which the two sides differ. With one seed, the resamples are approximated by a normal distribution, because a
    thousand resamples cannot distinguish p = 0.001 from p = 0.00001, which a table of two hundred differences requires.
    With several seeds, the test is Student's t with the variance of `SeedSpread`. No p-value is below 2 / 2^changed,
    the smallest p-value of a sign test.

    >>> round(over_images(np.array([2.0, 1.0, 2.0, 3.0]), 100), 4)
    0.0455
    >>> over_images(np.array([2.0, 1.0, 2.0, 3.0]), 3)
    0.25
    """
    rows = np.atleast_2d(resampled)
    means = rows.mean(axis=0)
    difference, finite = float(means[0]), means[1:][np.isfinite(means[1:])]
    if len(finite) < 2 or not math.isfinite(difference):
        raise Error("A p-value requires a finite difference and at least two resamples.", code="resamples-missing")
    if difference == 0 or changed == 0:
        return 1.0
    if len(rows) > 1:
        p_value = SeedSpread.of(rows).p_value()
    else:
        error = float(np.std(finite, ddof=1))
        p_value = math.erfc(abs(difference) / error / math.sqrt(2)) if error > 0 else 0.0
    return min(1.0, max(p_value, 2.0 ** (1 - changed)))


def over_seeds(differences: Sequence[float], level: float = LEVEL) -> tuple[Interval, float] | None:
    """Return the interval and the two-sided p-value of the mean of differences, one per seed, by Student's t.

    Use this function for seeds that draw images but kept no records. Seeds that only reorder the same images are not
    independent samples, so the test does not apply to them. None for a single seed, or if all differences are equal.

    >>> interval, p_value = over_seeds([1.0, 2.0, 3.0])
    >>> interval
    Interval(+2.00 [-0.48, +4.48])
    >>> round(p_value, 4)
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
