"""The five figures of the paper, in percent, from the per-image columns of one run.

auroc          area under the ROC curve of the scores, with desired images as the positive class
fpr95          share of undesired images accepted at 95 % accepted desired images, interpolated on the ROC polyline
acc_desired    share of desired images that are accepted with their class
acc_undesired  share of undesired images that are rejected
hm             harmonic mean of the two accuracies; 0 if both are 0

Two other conventions of FPR95 are computed as well:

fpr95_strict     the same share at the first threshold that accepts at least 95 % of the desired images, without
interpolation fpr95_undesired  sides exchanged: share of desired images rejected at 95 % rejected undesired images,
interpolated

Two more figures explain the accuracies:

accepted_desired  share of desired images that are accepted, with any class
accuracy          share of desired images whose best class is right, accepted or not

`ostta.evaluation.intervals` has confidence intervals of differences. A figure that a run cannot give, for example
because there is no undesired image, is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Error

CONVENTION = (
    "auroc: desired images are positive, score as recorded before the update; fpr95: undesired images accepted where "
    "95 % of the "
    "desired ones are accepted, linearly interpolated on the ROC polyline; acc_desired: accepted and right class; "
    "acc_undesired: rejected; hm: harmonic mean of the two accuracies; fpr95_strict: as fpr95, at the first threshold "
    "that accepts at "
    "least 95 % of the desired images; fpr95_undesired: desired images rejected where 95 % of the undesired ones are, "
    "interpolated; "
    "accepted_desired: desired images accepted; accuracy: desired images whose best class is right, accepted or not; "
    "all in percent"
)
NAMES = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")
BEHIND = ("accepted_desired", "accuracy")
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


def accuracies(labels: NDArray[Any], accepted: NDArray[Any], index: NDArray[Any]) -> dict[str, float | None]:
    """Return the accuracies, `hm` and the figures of `BEHIND`; `labels` are -1 for undesired images."""
    desired, right = labels >= 0, index == labels
    acc_desired = _share(accepted & right, desired)
    acc_undesired = _share(~accepted, ~desired)
    return {
        "acc_desired": acc_desired,
        "acc_undesired": acc_undesired,
        "hm": harmonic_mean(acc_desired, acc_undesired),
        "accepted_desired": _share(accepted, desired),
        "accuracy": _share(right, desired),
    }


def _share(which: NDArray[Any], of: NDArray[Any]) -> float | None:
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
    # The strict convention needs all thresholds, also those that do not change the shape of the curve.
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
    """Return all figures by name: those of `NAMES`, `FPR95` and `BEHIND`."""
    return {**separation(labels, scores), **accuracies(labels, accepted, index)}
