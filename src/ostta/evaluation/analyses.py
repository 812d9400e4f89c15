"""Analyses of the paper beyond its five figures: distances of features, accuracy of reliable images, and memory.

The analyses are computed after a run, from its records and the adapter. Accuracies are in percent; a value that cannot
be computed from a run is None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..adapter import Adapter
from ..core.banks import FeatureBank
from ..core.errors import translate_errors
from ..core.types import Error, Verdict
from ..methods.base import HoldsTrained
from .loop import Records
from .metrics import share

Floats = NDArray[np.float64]

# Iteration limit of the exact transport solver; two thousand features per side need far fewer.
MAX_ITERATIONS = 10_000_000


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances between desired and undesired features, the numbers of available and used features, and the seed."""

    euclidean: float
    cosine: float
    wasserstein: float
    desired_used: int
    undesired_used: int
    desired_given: int
    undesired_given: int
    seed: int


def distances(desired: ArrayLike, undesired: ArrayLike, *, limit: int = 2000, seed: int = 0) -> Distances:
    """Return three distances between two sets of features F_d [N, D] and F_u [M, D] (appendix of the paper).

        euclidean    1/(N M) sum_ij ||f_i - g_j||
        cosine       1 - 1/(N M) sum_ij f_i.g_j / (||f_i|| ||g_j||)
        wasserstein  W1 = min_P sum_ij P_ij ||f_i - g_j||, where the rows of P >= 0 sum to 1/N and its columns to 1/M,
                     computed exactly

    The cost of the transport problem grows faster than the square of the number of features, so at most `limit` random
    features per side are used. All three distances use the same features, hence wasserstein <= euclidean:
    P_ij = 1/(N M) is feasible.

    >>> apart = distances([[1.0, 0.0]], [[0.0, 1.0]])
    >>> round(apart.euclidean, 3), apart.cosine, round(apart.wasserstein, 3)
    (1.414, 1.0, 1.414)
    """
    if limit < 1:
        raise Error(f"`limit` must be at least 1, not {limit}.", code="option-invalid")
    first, second = _checked(desired, "desired"), _checked(undesired, "undesired")
    if first.shape[1] != second.shape[1]:
        raise Error(
            f"Desired features have the width {first.shape[1]} and undesired ones {second.shape[1]}: use features of "
            "one backbone.",
            code="features-invalid",
        )
    generator = np.random.default_rng(seed)
    f, g = _sample(first, limit, generator), _sample(second, limit, generator)
    from scipy.spatial.distance import cdist

    between: Floats = cdist(f, g)
    return Distances(
        euclidean=float(between.mean()),
        # The mean of all products equals the product of the means.
        cosine=float(1 - _directions(f).mean(0) @ _directions(g).mean(0)),
        wasserstein=_transport(between),
        desired_used=len(f),
        undesired_used=len(g),
        desired_given=len(first),
        undesired_given=len(second),
        seed=seed,
    )


def stream_distances(records: Records, *, limit: int = 2000, seed: int = 0) -> Distances | None:
    """Return the distances between desired and undesired images of a stream, from their features before each update.

    None if the features were not kept (adapter option `features`) or one side has no image.
    """
    sides: tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]] = ([], [])
    for label, features in zip(records.label, records.features, strict=True):
        if features is not None:
            sides[label < 0].append(features)
    if not all(sides):
        return None
    return distances(np.stack(sides[0]), np.stack(sides[1]), limit=limit, seed=seed)


def bank_distances(adapter: Adapter, *, limit: int = 2000, seed: int = 0) -> Distances | None:
    """Return the distances between the desired and the undesired feature bank of the method, or otherwise of the score.

    None unless both banks exist and have features.
    """
    memories = {**adapter.score.memories(), **adapter.state.memories()}
    banks = [memories.get(side) for side in ("desired", "undesired")]
    rows = [bank.features.cpu().numpy() for bank in banks if isinstance(bank, FeatureBank) and len(bank)]
    return distances(rows[0], rows[1], limit=limit, seed=seed) if len(rows) == 2 else None


def average_matches(records: Records) -> float | None:
    """Return the mean of K+ = sum_k [y_k = y] over the images that L_D was applied to; None if there are none.

    K+ is the number of the K nearest positives that have the class of the image, including the image itself (D6).
    """
    counted = [p.diagnostics["matches"] for p in records.predictions if "matches" in p.diagnostics]
    return float(np.mean(counted)) if counted else None


@dataclass(frozen=True, slots=True)
class ReliableAccuracy:
    """Accuracy of reliable images, in percent; None if there are no such images.

    pseudo_label:  share of the desired images among the reliable desired images whose class before the update is right
    desired:       share of the reliable desired images that are desired
    undesired:     share of the reliable undesired images that are undesired
    """

    pseudo_label: float | None
    desired: float | None
    undesired: float | None


def reliable_accuracy(records: Records) -> ReliableAccuracy:
    """Return the accuracy of reliable images, with R_d, R_u the reliable images, y the class and y^ the pseudo-label:

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
        pseudo_label=share(right, reliable_desired & desired),
        desired=share(desired, reliable_desired),
        undesired=share(~desired, reliable_undesired),
    )


@dataclass(frozen=True, slots=True)
class BankBytes:
    """Size in bytes of the preallocated storage for features (or images) and for scores."""

    features: int
    scores: int


def bank_bytes(adapter: Adapter) -> BankBytes:
    """Return the memory of the banks and caches of method and score, and of the score bank of the identifier.

    As in the paper, only features are counted, or pixels if a method stores images, without classes and entropies.
    ROSITA with C classes, K = 5 and features of length F takes (5 C + 64) F * 4 bytes: 0.233 MB for C = 10, F = 512.
    The memory table of the paper gives 0.758 MB for the same formula; its five entries correspond to
    (5 C + 320) F * 4 bytes (D7).
    """
    return BankBytes(
        features=sum(memory.bytes for owner in (adapter.state, adapter.score) for memory in owner.memories().values()),
        scores=sum(bank.bytes for bank in adapter.identifier.memories().values()),
    )


def adapted_parameters(adapter: Adapter) -> int | None:
    """Return the number of adapted parameters; None if the method adapts none."""
    state = adapter.state
    return sum(tensor.numel() for tensor in state.overlay.parameters()) if isinstance(state, HoldsTrained) else None


def _checked(features: ArrayLike, side: str) -> Floats:
    message = f"The {side} features must be numbers in rows of one length."
    with translate_errors("features-invalid", message, TypeError, ValueError):
        rows = np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise Error(
            f"The {side} features must have one row an image, at least one, not the shape {rows.shape}.",
            code="features-invalid",
        )
    invalid = ~np.isfinite(rows).all(1) | ~rows.any(1)
    if invalid.any():
        raise Error(
            f"{int(invalid.sum())} of {len(rows)} {side} features are zero or not finite.", code="features-invalid"
        )
    return rows


def _sample(rows: Floats, limit: int, generator: np.random.Generator) -> Floats:
    return rows if len(rows) <= limit else rows[generator.choice(len(rows), limit, replace=False)]


def _directions(rows: Floats) -> Floats:
    directions: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return directions


def _transport(costs: Floats) -> float:
    import ot

    weights = [np.full(count, 1 / count) for count in costs.shape]
    cost, log = ot.emd2(*weights, costs, numItermax=MAX_ITERATIONS, log=True)
    if log["warning"] is not None:
        raise Error(
            f"The transport between {len(costs)} and {costs.shape[1]} features did not converge: use a smaller "
            "`limit`.",
            code="transport-failed",
        )
    return float(cost)
