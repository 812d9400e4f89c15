"""The images that the rule remembers: balanced over the classes and over known and unknown images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Indices

# Images older than this many times the capacity are forgotten, so that a drift is followed.
OLDEST = 8


def kept(groups: Indices, steps: NDArray[np.int64], capacity: int, step: int) -> Indices:
    """Places of the images that are still remembered after step number `step`, in their order.

    `groups` has the group of each image and `steps` the step at which it was seen. While there are too many images, one
    of the largest group is dropped at random, so that a long run of one class displaces no other class. The random
    numbers depend on the step alone.

    >>> groups = np.array([0, 0, 0, 0, 1, 1])
    >>> np.bincount(groups[kept(groups, np.arange(6), capacity=4, step=6)]).tolist()
    [2, 2]
    """
    places = np.flatnonzero(steps > step - OLDEST * capacity)
    groups = groups[places]
    sizes = np.bincount(groups)
    left = sizes.copy()
    for _ in range(len(places) - capacity):
        left[left.argmax()] -= 1
    # Within each group, the images with the smallest random numbers stay.
    order = np.lexsort((np.random.default_rng(step).random(len(places)), groups))
    ranks = np.empty(len(places), np.int64)
    ranks[order] = np.arange(len(places)) - (np.cumsum(sizes) - sizes)[groups[order]]
    remembered: Indices = places[ranks < left[groups]]
    return remembered


def balanced(groups: Indices, capacity: int) -> Indices:
    """Places of at most `capacity` images of a set, balanced over their groups."""
    return kept(groups, np.zeros(len(groups), np.int64), capacity, 0)
