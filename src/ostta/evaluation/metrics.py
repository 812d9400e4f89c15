"""The five figures of the paper, in percent, from one run's per-image columns.

auroc          area under the ROC curve of the scores, desired images being the positive side
fpr95          share of undesired images accepted where 95 % of the desired ones are, interpolated on the ROC polyline
acc_desired    desired images that were accepted and given their right class
acc_undesired  undesired images that were rejected
hm             harmonic mean of the two accuracies; 0 where both are 0

The field counts FPR95 in other ways too. Both are kept beside the paper's, and a table shows the one it is asked for:

fpr95_strict     the same share at the first threshold that accepts at least 95 % of the desired images, nothing interpolated
fpr95_undesired  the sides exchanged: desired images rejected where 95 % of the undesired ones are, interpolated

Two more say what is behind the accuracies:

accepted_desired  desired images that were accepted, whatever their class was taken for
accuracy          desired images whose best class is the right one, accepted or not

`ostta.evaluation.intervals` has how sure the difference of two runs is. A figure that a one-sided stream cannot give (no undesired image: all that need one) is None, never a made-up number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Error

CONVENTION = (
    "auroc: desired images are positive, score as recorded before the update; fpr95: undesired images accepted where 95 % of the "
    "desired ones are accepted, linearly interpolated on the ROC polyline; acc_desired: accepted and right class; "
    "acc_undesired: rejected; hm: harmonic mean of the two accuracies; fpr95_strict: as fpr95, at the first threshold that accepts at "
    "least 95 % of the desired images; fpr95_undesired: desired images rejected where 95 % of the undesired ones are, interpolated; "
    "accepted_desired: desired images accepted; accuracy: desired images whose best class is right, accepted or not; all in percent"
)
NAMES = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")
BEHIND = ("accepted_desired", "accuracy")
# The conventions of FPR95, by the words that choose one, and the names of their figures; the first is the published code's.
FPR95 = {"interpolated": "fpr95", "strict": "fpr95_strict", "undesired": "fpr95_undesired"}


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
    """`acc_desired`, `acc_undesired`, `hm` and what is behind them; `labels` are -1 for undesired images."""
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
    """`auroc`, and `fpr95` by each convention, of the scores."""
    desired = labels >= 0
    if desired.all() or not desired.any():
        return dict.fromkeys(("auroc", *FPR95.values()))
    if not np.isfinite(scores).all():
        raise Error(
            f"{int((~np.isfinite(scores)).sum())} of {len(scores)} scores are not finite; no curve can be drawn."
        )
    from sklearn.metrics import roc_auc_score, roc_curve

    false_accepted, true_accepted, _ = roc_curve(desired, scores)
    false_rejected, true_rejected, _ = roc_curve(~desired, -scores)
    # Here every threshold counts, also those that a drawn curve can do without.
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
    """All five, by the names of `NAMES`, the other two ways to count FPR95, and the two of `BEHIND`."""
    return {**separation(labels, scores), **accuracies(labels, accepted, index)}
