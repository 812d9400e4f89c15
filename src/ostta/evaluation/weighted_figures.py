"""The figures of `ostta.evaluation.metrics` of images that have weights, in many resamples at once: what intervals are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shown:
    """A run's entries, or those of one domain, and the weights of all images, of which `places` are the entries' own.

    All sums are of whole numbers, which are exact, so the order of the entries does not change a bit.
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
        """In percent; NaN where there is nothing of which to have a share."""
        counts = [np.bincount(self.places[entries], minlength=len(self.weights)) for entries in (which & of, of)]
        sums = (np.stack(counts).astype(np.float32) @ self.weights).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(100 * sums[0] / sums[1])


def _acc_desired(shown: Shown) -> Values:
    return shown.share(shown.accepted & (shown.index == shown.labels), shown.desired)


def _acc_undesired(shown: Shown) -> Values:
    return shown.share(~shown.accepted, ~shown.desired)


def _accepted_desired(shown: Shown) -> Values:
    return shown.share(shown.accepted, shown.desired)


def _accuracy(shown: Shown) -> Values:
    return shown.share(shown.index == shown.labels, shown.desired)


def _open_accuracy(shown: Shown) -> Values:
    """A known image is right where it is accepted and its class is, an unknown one where it is rejected."""
    right = np.where(shown.desired, shown.accepted & (shown.index == shown.labels), ~shown.accepted)
    return shown.share(right, np.ones(len(right), bool))


def _hm(shown: Shown) -> Values:
    first, second = _acc_desired(shown), _acc_undesired(shown)
    total = first + second
    return np.asarray(np.where(total == 0, 0.0, 2 * first * second / np.where(total == 0, 1.0, total)))


def _auroc(shown: Shown) -> Values:
    """By weighted ranks: for each desired image the undesired ones below it, and half of those with its score."""
    desired, undesired = np.flatnonzero(shown.desired), np.flatnonzero(~shown.desired)
    undesired = undesired[np.argsort(shown.scores[undesired], kind="stable")]
    below = np.zeros((len(undesired) + 1, shown.weights.shape[1]), np.float32)
    np.cumsum(shown.weights[shown.places[undesired]], axis=0, out=below[1:])
    first, last = (np.searchsorted(shown.scores[undesired], shown.scores[desired], side) for side in ("left", "right"))
    ours = shown.weights[shown.places[desired]]
    won = np.einsum("ij,ij->j", ours, below[first] + below[last], dtype=np.float64) / 2
    pairs = ours.sum(axis=0, dtype=np.float64) * below[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(100 * won / pairs)


def _fpr95(shown: Shown, *, strict: bool = False, exchanged: bool = False) -> Values:
    """By the conventions of `ostta.evaluation.metrics`: where 95 % of one side are on the right side of a threshold, how many of the other are too."""
    scores, side = (-shown.scores, ~shown.desired) if exchanged else (shown.scores, shown.desired)
    order = np.argsort(-scores, kind="stable")
    # A curve has a point where the score changes: equal scores are accepted together.
    ends = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)
    found = []
    # Some resamples at a time: the curves of all of them would be the largest thing in memory.
    for start in range(0, shown.weights.shape[1], 100):
        weights = shown.weights[:, start : start + 100][shown.places[order]].astype(np.float64)
        one, other = (_curve(np.where(which[order, None], weights, 0.0), ends) for which in (side, ~side))
        after = (one < 0.95).sum(axis=0) if strict else (one <= 0.95).sum(axis=0)
        after = np.minimum(after, len(one) - 1)
        x, y = ([np.take_along_axis(curve, at[None], 0)[0] for at in (after - 1, after)] for curve in (one, other))
        share = np.zeros_like(x[0]) if strict else (0.95 - x[0]) / np.where(x[1] == x[0], 1.0, x[1] - x[0])
        found.append(y[1] if strict else y[0] + share * (y[1] - y[0]))
    return np.asarray(100 * np.concatenate(found))


def _curve(weights: Values, ends: NDArray[np.int64]) -> Values:
    """The share that is accepted, from nothing to all, at each of the points; NaN where there is nothing on this side."""
    sums = np.cumsum(weights, axis=0)[ends]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.concatenate([np.zeros((1, sums.shape[1])), sums]) / sums[-1])


FIGURES: dict[str, Callable[[Shown], Values]] = {
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
