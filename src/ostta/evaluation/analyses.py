"""What the paper measures beside its five figures: how far the two kinds of features lie apart, how good the reliable images are
that a method learns from, and what its memory costs.

All of it is worked out after a run, from its records and the adapter at the end; nothing here is part of a step. Accuracies are in
percent, and a figure that a run cannot give is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..adapter import Adapter
from ..core.banks import FeatureBank
from ..core.types import Error, Verdict
from ..methods.base import HoldsTrained
from .loop import Records

Floats = NDArray[np.float64]

# Pivots of the exact transport solver before it gives up: two thousand features a side need far fewer.
MOST_PIVOTS = 10_000_000


@dataclass(frozen=True, slots=True)
class Distances:
    """How far desired features lie from undesired ones, of how many given features how many were used, and by which seed."""

    euclidean: float
    cosine: float
    wasserstein: float
    desired_used: int
    undesired_used: int
    desired_given: int
    undesired_given: int
    seed: int


def distances(desired: ArrayLike, undesired: ArrayLike, *, limit: int = 2000, seed: int = 0) -> Distances:
    """The three distances between two sets of features F_d [N, D] and F_u [M, D] (appendix of the paper).

        euclidean    1/(N M) sum_ij ||f_i - g_j||
        cosine       1 - 1/(N M) sum_ij f_i.g_j / (||f_i|| ||g_j||)
        wasserstein  W1 = min_P sum_ij P_ij ||f_i - g_j||, where the rows of P >= 0 sum to 1/N and its columns to 1/M; exact

    Transport costs more than the square of the number of features, so a side with more than `limit` is cut down to a random choice
    of that many. All three are of the same features, hence wasserstein <= euclidean: P_ij = 1/(N M) is one way to carry them over.

    >>> apart = distances([[1.0, 0.0]], [[0.0, 1.0]])
    >>> round(apart.euclidean, 3), apart.cosine, round(apart.wasserstein, 3)
    (1.414, 1.0, 1.414)
    """
    if limit < 1:
        raise Error(f"`limit` is the number of features used a side, at least 1, not {limit}.")
    first, second = _checked(desired, "desired"), _checked(undesired, "undesired")
    if first.shape[1] != second.shape[1]:
        raise Error(
            f"Desired features are {first.shape[1]} wide and undesired ones {second.shape[1]}; both come from one backbone."
        )
    generator = np.random.default_rng(seed)
    f, g = _chosen(first, limit, generator), _chosen(second, limit, generator)
    from scipy.spatial.distance import cdist

    between: Floats = cdist(f, g)
    return Distances(
        euclidean=float(between.mean()),
        # The mean of all products is the product of the means.
        cosine=float(1 - _directions(f).mean(0) @ _directions(g).mean(0)),
        wasserstein=_transport(between),
        desired_used=len(f),
        undesired_used=len(g),
        desired_given=len(first),
        undesired_given=len(second),
        seed=seed,
    )


def stream_distances(records: Records, *, limit: int = 2000, seed: int = 0) -> Distances | None:
    """The distances between all desired and undesired images of a stream, by their features from before each update.

    None where the features were not kept (adapter option `features`) or one side has none.
    """
    sides: tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]] = ([], [])
    for label, features in zip(records.label, records.features, strict=True):
        if features is not None:
            sides[label < 0].append(features)
    if not all(sides):
        return None
    return distances(np.stack(sides[0]), np.stack(sides[1]), limit=limit, seed=seed)


def bank_distances(adapter: Adapter, *, limit: int = 2000, seed: int = 0) -> Distances | None:
    """The distances between the desired and the undesired feature bank as they are, the method's or else the score's; None unless there are both, filled."""
    memories = {**adapter.score.memories(), **adapter.state.memories()}
    banks = [memories.get(side) for side in ("desired", "undesired")]
    rows = [bank.features.cpu().numpy() for bank in banks if isinstance(bank, FeatureBank) and len(bank)]
    return distances(rows[0], rows[1], limit=limit, seed=seed) if len(rows) == 2 else None


def average_matches(records: Records) -> float | None:
    """Mean of K+ = sum_k [y_k = y] over the images that L_D acted on; None where it acted on none.

    K+ counts the K nearest positives that have the image's own class. An image that is its own neighbour counts itself (D6).
    """
    counted = [p.diagnostics["matches"] for p in records.predictions if "matches" in p.diagnostics]
    return float(np.mean(counted)) if counted else None


@dataclass(frozen=True, slots=True)
class ReliableAccuracy:
    """How right the reliable images are, in percent; None where there is no such image.

    pseudo_label: of the truly desired images among the reliable desired ones, those whose class before the update is their own.
    desired: of the reliable desired images, those that are desired.
    undesired: of the reliable undesired images, those that are undesired.
    """

    pseudo_label: float | None
    desired: float | None
    undesired: float | None


def reliable_accuracy(records: Records) -> ReliableAccuracy:
    """The accuracy of what enters the banks. With R_d, R_u the images of reliable verdict, y their class and y^ the pseudo-label:

        pseudo_label  |{R_d: y desired, y^ = y}| / |{R_d: y desired}|
        desired       |{R_d: y desired}| / |R_d|
        undesired     |{R_u: y undesired}| / |R_u|

    The share of all of R_d with the right class, undesired images counting as wrong, is the product of the first two.
    """
    labels, verdicts = records.labels, records.column("verdict")
    reliable_desired, reliable_undesired = (
        verdicts == str(v) for v in (Verdict.RELIABLE_DESIRED, Verdict.RELIABLE_UNDESIRED)
    )
    desired = labels >= 0
    right = records.column("pseudo_label") == labels
    return ReliableAccuracy(
        pseudo_label=_percent(right[reliable_desired & desired]),
        desired=_percent(desired[reliable_desired]),
        undesired=_percent(~desired[reliable_undesired]),
    )


@dataclass(frozen=True, slots=True)
class BankBytes:
    """Bytes of the storage for features (or the images themselves) and for scores, which is allocated once and does not grow."""

    features: int
    scores: int


def bank_bytes(adapter: Adapter) -> BankBytes:
    """What a method and a score remember of images: banks, caches and pools, whatever their names, and the identifier's score bank.

    Only features are counted, as in the paper, or pixels where a method keeps images, not their classes and entropies. ROSITA with C classes, K = 5 and features of F
    numbers: (5 C + 64) F * 4 bytes, 0.233 MB for C = 10, F = 512. The paper's memory table prints 0.758 MB beside the same formula;
    its five entries are all those of (5 C + 320) F * 4 bytes (D7).
    """
    return BankBytes(
        features=sum(memory.bytes for owner in (adapter.state, adapter.score) for memory in owner.memories().values()),
        scores=sum(bank.bytes for bank in adapter.identifier.memories().values()),
    )


def adapted_parameters(adapter: Adapter) -> int | None:
    """How many numbers the overlay adapts; None where the method has none."""
    state = adapter.state
    return sum(tensor.numel() for tensor in state.overlay.parameters()) if isinstance(state, HoldsTrained) else None


def _checked(features: ArrayLike, side: str) -> Floats:
    try:
        rows = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError):
        raise Error(f"The {side} features are not numbers in rows of one length.") from None
    if rows.ndim != 2 or not rows.size:
        raise Error(
            f"The {side} features are rows of one image each, at least one, not an array of shape {rows.shape}."
        )
    strange = ~np.isfinite(rows).all(1)
    if strange.any():
        raise Error(
            f"{int(strange.sum())} of {len(rows)} {side} features are not finite; they have no distance to anything."
        )
    if not rows.any(1).all():
        raise Error(f"{int((~rows.any(1)).sum())} of {len(rows)} {side} features are zero; they have no direction.")
    return rows


def _chosen(rows: Floats, limit: int, generator: np.random.Generator) -> Floats:
    return rows if len(rows) <= limit else rows[generator.choice(len(rows), limit, replace=False)]


def _directions(rows: Floats) -> Floats:
    directions: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions


def _transport(costs: Floats) -> float:
    import ot

    weights = [np.full(count, 1 / count) for count in costs.shape]
    cost, log = ot.emd2(*weights, costs, numItermax=MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise Error(
            f"The transport between {len(costs)} and {costs.shape[1]} features was not found: use a smaller `limit`."
        )
    return float(cost)


def _percent(right: NDArray[Any]) -> float | None:
    return 100 * float(right.mean()) if len(right) else None
