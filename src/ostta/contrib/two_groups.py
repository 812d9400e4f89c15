"""Detect whether the recent images assigned to a class form two groups.

The best and the worst images of a class differ gradually: the neighbours of an image lie on both sides of any threshold
between them. If unknown images are assigned to a class, the neighbours of an image lie mostly on its own side, even if
the unknown images fit well. For images assigned to the same class:

    kinship    correlation of the side of an image with the mean side of its nearest neighbours
    clearness  share of the variance of the gaps that a split into two groups explains

Classes differ from each other, so both quantities use the variation within classes, pooled over all classes. A single
diverse class has kinship, but no clearness.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.otsu import explained_share, otsu_split
from ..scores.window import Floats, Singles

Places = NDArray[np.intp]

# Minimum number of images of a class. A split explains most of the variance of only a few numbers.
LEAST = 16
# Thresholds. Windows of held-out images reached at most 0.68 and 0.77 without unknown images, and 0.71 to 0.93 and
# 0.81 to 0.90 if half of the images were fooling digits and the model recognises its classes.
KINSHIP, CLEARNESS = 0.72, 0.78
# Minimum share of images in the lower group. Rarer unknown images are detected by their contrast, if at all. The share
# was at least 0.42 in windows with fooling digits, and at most 0.37 in windows with a sixth or a quarter of other
# unknown images.
LOWER = 0.38


def in_two_groups(centred: Singles, scores: Floats, gaps: Floats, best: Places, nearest: int) -> bool:
    """Return whether the images of the classes form two groups.

    `centred` are unit features [N, D]; `gaps` say how much closer an image is to known images than to the lowest, and
    `best` are the best classes.
    """
    low = scores < otsu_split(scores).threshold
    if low.mean() <= LOWER:
        return False
    classes = [places for label in np.unique(best) if len(places := np.flatnonzero(best == label)) >= LEAST]
    return clearness(gaps, classes) > CLEARNESS and kinship(centred, low, classes, nearest) > KINSHIP


def clearness(gaps: Floats, classes: list[Places]) -> float:
    """Return the share of the variance within classes that a split of each class into two groups explains.

    >>> round(clearness(np.array([0.1, 0.3, 0.9, 1.1, 5.1, 5.3, 5.9, 6.1]), [np.arange(4), np.arange(4, 8)]), 2)
    0.94
    """
    parts = [gaps[places] for places in classes]
    spread = sum(len(part) * float(part.var()) for part in parts)
    explained = sum(len(part) * float(part.var()) * explained_share(part) for part in parts)
    return explained / spread if spread > 0 else 0.0


def kinship(centred: Singles, low: NDArray[np.bool_], classes: list[Places], nearest: int) -> float:
    """Return the correlation, within classes, of the side of each image with the sides of its neighbours."""
    own, theirs = [np.zeros(0)], [np.zeros(0)]
    for places in classes:
        among = centred[places] @ centred[places].T
        np.fill_diagonal(among, -9)
        few = min(nearest, len(places) - 1)
        neighbours = np.argpartition(among, -few, 1)[:, -few:]
        side = low[places].astype(np.float64)
        own.append(side - side.mean())
        theirs.append(side[neighbours].mean(1) - side.mean())
    one, other = np.concatenate(own), np.concatenate(theirs)
    length = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / length if length > 0 else 0.0
