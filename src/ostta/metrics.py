"""The five figures of the paper, in percent, from one run's per-image columns (spec 1.7).

auroc          area under the ROC curve of the scores, desired images being the positive side
fpr95          share of undesired images accepted where 95 % of the desired ones are, interpolated on the ROC polyline
acc_desired    desired images that were accepted and given their right class
acc_undesired  undesired images that were rejected
hm             harmonic mean of the two accuracies; 0 where both are 0

A figure that a one-sided stream cannot give (no undesired image: all but acc_desired) is None, never a made-up number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core.types import Error

CONVENTION = (
    "auroc: desired images are positive, score as recorded before the update; fpr95: undesired images accepted where 95 % of the "
    "desired ones are accepted, linearly interpolated on the ROC polyline; acc_desired: accepted and right class; "
    "acc_undesired: rejected; hm: harmonic mean of the two accuracies; all in percent"
)
NAMES = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")


def harmonic_mean(first: float | None, second: float | None) -> float | None:
    """0 where both are 0, None where one is missing."""
    if first is None or second is None:
        return None
    return 0.0 if first + second == 0 else 2 * first * second / (first + second)


def mean(values: Sequence[float | None]) -> float | None:
    """The plain mean; None where there is nothing, or a value is missing."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def accuracies(labels: NDArray[Any], accepted: NDArray[Any], index: NDArray[Any]) -> dict[str, float | None]:
    """`acc_desired`, `acc_undesired` and `hm`; `labels` are -1 for undesired images."""
    desired = labels >= 0
    right = accepted & (index == labels)
    acc_desired = 100 * float(right[desired].mean()) if desired.any() else None
    acc_undesired = 100 * float((~accepted[~desired]).mean()) if (~desired).any() else None
    return {"acc_desired": acc_desired, "acc_undesired": acc_undesired, "hm": harmonic_mean(acc_desired, acc_undesired)}


def separation(labels: NDArray[Any], scores: NDArray[Any]) -> dict[str, float | None]:
    """`auroc` and `fpr95` of the scores."""
    desired = labels >= 0
    if desired.all() or not desired.any():
        return {"auroc": None, "fpr95": None}
    if not np.isfinite(scores).all():
        raise Error(
            f"{int((~np.isfinite(scores)).sum())} of {len(scores)} scores are not finite; no curve can be drawn."
        )
    from sklearn.metrics import roc_auc_score, roc_curve

    false_accepted, true_accepted, _ = roc_curve(desired, scores)
    return {
        "auroc": 100 * float(roc_auc_score(desired, scores)),
        "fpr95": 100 * float(np.interp(0.95, true_accepted, false_accepted)),
    }


def summary(
    labels: NDArray[Any], scores: NDArray[Any], accepted: NDArray[Any], index: NDArray[Any]
) -> dict[str, float | None]:
    """All five, by the names of `NAMES`."""
    return {**separation(labels, scores), **accuracies(labels, accepted, index)}
