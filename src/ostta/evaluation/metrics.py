"""The five figures of the paper, in percent, from the per-image columns of one run.

auroc          area under the ROC curve of the scores, with desired images as the positive class
fpr95          share of undesired images accepted at 95 % accepted desired images, interpolated on the ROC polyline
acc_desired    share of desired images that are accepted with their class
acc_undesired  share of undesired images that are rejected
hm             harmonic mean of the two accuracies; 0 if both are 0

Two other conventions of FPR95 are computed as well:

fpr95_strict     the same share at the first threshold that accepts at least 95 % of the desired images, without
                 interpolation
fpr95_undesired  sides exchanged: share of desired images rejected at 95 % rejected undesired images, interpolated

Two more figures explain the accuracies:

accepted_desired  share of desired images that are accepted, with any class
accuracy          share of desired images whose best class is right, accepted or not

A figure that cannot be computed from a run, for example because there is no undesired image, is None.

The second half of this file computes the same figures for many weightings of the images at once, which
`ostta.evaluation.intervals` needs for confidence intervals; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Error

Values = NDArray[np.float64]

CONVENTION = (
    "auroc: desired images are positive, score as recorded before the update; fpr95: undesired images accepted where "
    "95 % of the desired ones are accepted, linearly interpolated on the ROC polyline; acc_desired: accepted and "
    "right class; acc_undesired: rejected; hm: harmonic mean of the two accuracies; fpr95_strict: as fpr95, at the "
    "first threshold that accepts at least 95 % of the desired images; fpr95_undesired: desired images rejected where "
    "95 % of the undesired ones are, interpolated; accepted_desired: desired images accepted; accuracy: desired "
    "images whose best class is right, accepted or not; all in percent"
)
NAMES = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")
SUPPORTING = ("accepted_desired", "accuracy")
# Conventions of FPR95 and the names of their figures; the first is that of the published code.
FPR95 = {"interpolated": "fpr95", "strict": "fpr95_strict", "undesired": "fpr95_undesired"}


def harmonic_mean(first: float | None, second: float | None) -> float | None:
    """Return the harmonic mean: 0 if both are 0, None if one is missing."""
    if first is None or second is None:
        return None
    return 0.0 if first + second == 0 else 2 * first * second / (first + second)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if there is no value or one is missing."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def right_answers(labels: NDArray[Any], accepted: NDArray[Any], index: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each answer is right: the class of a desired image, or the rejection of an undesired image."""
    return np.where(labels >= 0, accepted & (index == labels), ~accepted)


def ranked_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores with a value below all others for scores that are not finite: their images are never accepted.

    >>> ranked_scores(np.array([0.5, np.nan, 0.75])).tolist()
    [0.5, -0.5, 0.75]
    """
    finite = np.isfinite(scores)
    return np.where(finite, scores, scores[finite].min() - 1.0 if finite.any() else 0.0)


def accuracies(labels: NDArray[Any], accepted: NDArray[Any], index: NDArray[Any]) -> dict[str, float | None]:
    """Return the accuracies, `hm` and the figures of `SUPPORTING`; `labels` are -1 for undesired images."""
    desired, right = labels >= 0, index == labels
    acc_desired = share(accepted & right, desired)
    acc_undesired = share(~accepted, ~desired)
    return {
        "acc_desired": acc_desired,
        "acc_undesired": acc_undesired,
        "hm": harmonic_mean(acc_desired, acc_undesired),
        "accepted_desired": share(accepted, desired),
        "accuracy": share(right, desired),
    }


def share(which: NDArray[Any], of: NDArray[Any]) -> float | None:
    """Return the share of `which` among `of` in percent; None if `of` is empty.

    >>> share(np.array([True, False, True]), np.array([True, True, False]))
    50.0
    """
    return 100 * float(which[of].mean()) if of.any() else None


def separation(labels: NDArray[Any], scores: NDArray[Any]) -> dict[str, float | None]:
    """Return `auroc` and `fpr95` in each convention."""
    desired = labels >= 0
    if desired.all() or not desired.any():
        return dict.fromkeys(("auroc", *FPR95.values()))
    if not np.isfinite(scores).all():
        raise Error(
            f"{int((~np.isfinite(scores)).sum())} of {len(scores)} scores are not finite, so there is no ROC curve.",
            code="scores-not-finite",
        )
    from sklearn.metrics import roc_auc_score, roc_curve

    false_accepted, true_accepted, _ = roc_curve(desired, scores)
    false_rejected, true_rejected, _ = roc_curve(~desired, -scores)
    # The strict convention needs all thresholds, including those that do not change the shape of the curve.
    all_false, all_true, _ = roc_curve(desired, scores, drop_intermediate=False)
    return {
        "auroc": 100 * float(roc_auc_score(desired, scores)),
        "fpr95": 100 * float(np.interp(0.95, true_accepted, false_accepted)),
        "fpr95_strict": 100 * float(all_false[np.argmax(all_true >= 0.95)]),
        "fpr95_undesired": 100 * float(np.interp(0.95, true_rejected, false_rejected)),
    }


def summary(
    labels: NDArray[Any], scores: NDArray[Any], accepted: NDArray[Any], index: NDArray[Any]
) -> dict[str, float | None]:
    """Return all figures by name: those of `NAMES`, `FPR95` and `SUPPORTING`."""
    return {**separation(labels, scores), **accuracies(labels, accepted, index)}


# --- figures of weighted images ---------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class WeightedEntries:
    """Entries of a run, or of one domain, with the weights of all images; `places` are the images of the entries.

    All sums are sums of integers, which are exact, so the order of the entries has no effect.
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
    """Return the share of right answers among all images."""
    right = right_answers(entries.labels, entries.accepted, entries.index)
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
    """Compute FPR95 in its three conventions; `exchanged` swaps the two sides."""
    scores, side = (-entries.scores, ~entries.desired) if exchanged else (entries.scores, entries.desired)
    order = np.argsort(-scores, kind="stable")
    # The curve has a point wherever the score changes: equal scores are accepted together.
    ends = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)
    blocks = []
    # In blocks of resamples, to limit the memory of the curves.
    for start in range(0, entries.weights.shape[1], 100):
        weights = entries.weights[:, start : start + 100][entries.places[order]].astype(np.float64)
        one, other = (_curve(np.where(which[order, None], weights, 0.0), ends) for which in (side, ~side))
        after = (one < 0.95).sum(axis=0) if strict else (one <= 0.95).sum(axis=0)
        after = np.minimum(after, len(one) - 1)
        x, y = ([np.take_along_axis(curve, at[None], 0)[0] for at in (after - 1, after)] for curve in (one, other))
        share = np.zeros_like(x[0]) if strict else (0.95 - x[0]) / np.where(x[1] == x[0], 1.0, x[1] - x[0])
        blocks.append(y[1] if strict else y[0] + share * (y[1] - y[0]))
    return np.asarray(100 * np.concatenate(blocks))


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

# Figures that depend on the scores and not on the answers.
OF_SCORES = ("auroc", "fpr95", "fpr95_strict", "fpr95_undesired")
