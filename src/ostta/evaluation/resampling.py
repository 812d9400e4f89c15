"""Bootstrap resamples of images, and the figures of `ostta.evaluation.metrics` for images with weights.

The figures are computed for all resamples at once. `ostta.evaluation.metrics` computes them for one run with
scikit-learn; the tests compare the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.types import Error

RESAMPLES = 1_000

Values = NDArray[np.float64]
# An image: its side and data set as one text, and its number there.
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

    @cached_property
    def images(self) -> list[Image]:
        """Image of each entry."""
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
        # One row an image. The first column is the original data: every image once.
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
        """Return the values of each run, one row a run, instead of their mean.

        >>> run = Outcomes.of([0, -1], [0.9, 0.2], [True, False], [0, 0])
        >>> Resampling([run], resamples=3).values_by_run([run, run], "hm").shape
        (2, 4)
        """
        if metric not in FIGURES:
            raise Error(f"There is no interval for {metric!r}; use one of {', '.join(FIGURES)}.", code="metric-unknown")
        return np.stack([self._of_run(run, metric, by_domain) for run in runs])

    def places(self, run: Outcomes) -> NDArray[np.int64]:
        """Return the row of the image of each entry; a KeyError if an image is not among those of the resampling.

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
    """Return how often each of `count` images is drawn, one column a resample."""
    drawn = generator.integers(count, size=(resamples, count)) + count * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count).T


# --- figures of weighted images ---------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class WeightedEntries:
    """Entries of a run, or of one domain, with the weights of all images; `places` are the images of the entries.

    All sums are sums of whole numbers, which are exact, so the order of the entries has no effect.
    """

    weights: NDArray[np.float32]
    places: NDArray[np.int64]
    labels: NDArray[np.int64]
    scores: Values
    accepted: NDArray[np.bool_]
    index: NDArray[np.int64]

    @property
    def desired(self) -> NDArray[np.bool_]:
        return self.labels >= 0

    def share(self, which: NDArray[np.bool_], of: NDArray[np.bool_]) -> Values:
        """Return the share of `which` among `of` in percent; NaN if `of` is empty."""
        counts = [np.bincount(self.places[part], minlength=len(self.weights)) for part in (which & of, of)]
        sums = (np.stack(counts).astype(np.float32) @ self.weights).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(100 * sums[0] / sums[1])


def _acc_desired(entries: WeightedEntries) -> Values:
    return entries.share(entries.accepted & (entries.index == entries.labels), entries.desired)


def _acc_undesired(entries: WeightedEntries) -> Values:
    return entries.share(~entries.accepted, ~entries.desired)


def _accepted_desired(entries: WeightedEntries) -> Values:
    return entries.share(entries.accepted, entries.desired)


def _accuracy(entries: WeightedEntries) -> Values:
    return entries.share(entries.index == entries.labels, entries.desired)


def _open_accuracy(entries: WeightedEntries) -> Values:
    """Share of known images that are accepted with their class and unknown images that are rejected."""
    right = np.where(entries.desired, entries.accepted & (entries.index == entries.labels), ~entries.accepted)
    return entries.share(right, np.ones(len(right), bool))


def _hm(entries: WeightedEntries) -> Values:
    first, second = _acc_desired(entries), _acc_undesired(entries)
    total = first + second
    return np.asarray(np.where(total == 0, 0.0, 2 * first * second / np.where(total == 0, 1.0, total)))


def _auroc(entries: WeightedEntries) -> Values:
    """Compute AUROC by weighted ranks: undesired images below each desired image, ties counting half."""
    desired, undesired = np.flatnonzero(entries.desired), np.flatnonzero(~entries.desired)
    undesired = undesired[np.argsort(entries.scores[undesired], kind="stable")]
    below = np.zeros((len(undesired) + 1, entries.weights.shape[1]), np.float32)
    np.cumsum(entries.weights[entries.places[undesired]], axis=0, out=below[1:])
    first, last = (
        np.searchsorted(entries.scores[undesired], entries.scores[desired], side) for side in ("left", "right")
    )
    ours = entries.weights[entries.places[desired]]
    won = np.einsum("ij,ij->j", ours, below[first] + below[last], dtype=np.float64) / 2
    pairs = ours.sum(axis=0, dtype=np.float64) * below[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(100 * won / pairs)


def _fpr95(entries: WeightedEntries, *, strict: bool = False, exchanged: bool = False) -> Values:
    """Compute FPR95 in the conventions of `ostta.evaluation.metrics`; `exchanged` swaps the two sides."""
    scores, side = (-entries.scores, ~entries.desired) if exchanged else (entries.scores, entries.desired)
    order = np.argsort(-scores, kind="stable")
    # The curve has a point wherever the score changes: equal scores are accepted together.
    ends = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)
    found = []
    # In blocks of resamples, to limit the memory for the curves.
    for start in range(0, entries.weights.shape[1], 100):
        weights = entries.weights[:, start : start + 100][entries.places[order]].astype(np.float64)
        one, other = (_curve(np.where(which[order, None], weights, 0.0), ends) for which in (side, ~side))
        after = (one < 0.95).sum(axis=0) if strict else (one <= 0.95).sum(axis=0)
        after = np.minimum(after, len(one) - 1)
        x, y = ([np.take_along_axis(curve, at[None], 0)[0] for at in (after - 1, after)] for curve in (one, other))
        share = np.zeros_like(x[0]) if strict else (0.95 - x[0]) / np.where(x[1] == x[0], 1.0, x[1] - x[0])
        found.append(y[1] if strict else y[0] + share * (y[1] - y[0]))
    return np.asarray(100 * np.concatenate(found))


def _curve(weights: Values, ends: NDArray[np.int64]) -> Values:
    """Return the accepted share at each point of the curve, from 0 to 1; NaN if this side is empty."""
    sums = np.cumsum(weights, axis=0)[ends]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.concatenate([np.zeros((1, sums.shape[1])), sums]) / sums[-1])


FIGURES: dict[str, Callable[[WeightedEntries], Values]] = {
    "auroc": _auroc,
    "fpr95": _fpr95,
    "fpr95_strict": partial(_fpr95, strict=True),
    "fpr95_undesired": partial(_fpr95, exchanged=True),
    "acc_desired": _acc_desired,
    "acc_undesired": _acc_undesired,
    "hm": _hm,
    "accepted_desired": _accepted_desired,
    "accuracy": _accuracy,
    "open_accuracy": _open_accuracy,
}

# Figures that depend on all scores and not on the answers.
OF_SCORES = ("auroc", "fpr95", "fpr95_strict", "fpr95_undesired")
