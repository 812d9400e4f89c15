"""A sample that has as many of each class as there can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def balanced(labels: Numbers, wanted: int, chance: np.random.Generator) -> Numbers:
    """The numbers of `wanted` entries of `labels`, all where there are fewer, drawn by `chance`, in ascending order.

    A smaller number with the same `chance` draws some of the same.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> np.bincount(labels[balanced(labels, 4, np.random.default_rng(0))])
    array([2, 2])
    """
    order = chance.permutation(len(labels))
    mixed = np.asarray(labels)[order]
    # The first of each class, then the second of each, and so on.
    by_class = np.argsort(mixed, kind="stable")
    starts = np.searchsorted(mixed[by_class], mixed[by_class], side="left")
    turn = np.empty(len(order), np.int64)
    turn[by_class] = np.arange(len(order)) - starts
    return np.sort(order[np.argsort(turn, kind="stable")[:wanted]])
