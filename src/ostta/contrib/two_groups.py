"""Whether the recent images that are given to a class are of two kinds.

The best and the worst images of a class differ by degrees: an image's neighbours lie on both sides of any line between them. Where
unknown images are given to a class, each kind keeps to its own side, however well the unknown ones fit. So, of images that are given
to the same class:

    kinship    correlation of an image's side of the cut with the mean side of its nearest neighbours
    clearness  share of the gaps' variance that a cut in two explains

Classes differ from each other, so that both are of what varies inside of classes, all of them together. One class alone with much in
it has kinship, but no clearness.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.otsu import explained_share, otsu_split

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Places = NDArray[np.intp]

# A class that fewer images are given to tells nothing: a cut in two explains most of a few numbers.
LEAST = 16
# Of windows of held-out images without unknown ones they were 0.68 and 0.77 at the most; of those half of which were fooling digits,
# 0.71 to 0.93 and 0.81 to 0.90, where the model knows its classes.
KINSHIP, CLEARNESS = 0.72, 0.78
# Two groups only where the lower one has so many of the images. Of rarer unknown ones, those that can be found at all are found by their
# contrast. It was 0.42 and more in the windows with fooling digits, at most 0.37 in those with a sixth or a quarter of others.
LOWER = 0.38


def in_two_groups(centred: Singles, scores: Floats, gaps: Floats, best: Places, nearest: int) -> bool:
    """Of unit features [N, D], their scores, how much nearer each is to known images than to the lowest, and its best class."""
    low = scores < otsu_split(scores)[0]
    if low.mean() <= LOWER:
        return False
    classes = [places for label in np.unique(best) if len(places := np.flatnonzero(best == label)) >= LEAST]
    return clearness(gaps, classes) > CLEARNESS and kinship(centred, low, classes, nearest) > KINSHIP


def clearness(gaps: Floats, classes: list[Places]) -> float:
    """The share of the variance inside of classes that a cut in two of each explains.

    >>> round(clearness(np.array([0.1, 0.3, 0.9, 1.1, 5.1, 5.3, 5.9, 6.1]), [np.arange(4), np.arange(4, 8)]), 2)
    0.94
    """
    parts = [gaps[places] for places in classes]
    spread = sum(len(part) * float(part.var()) for part in parts)
    explained = sum(len(part) * float(part.var()) * explained_share(part) for part in parts)
    return explained / spread if spread > 0 else 0.0


def kinship(centred: Singles, low: NDArray[np.bool_], classes: list[Places], nearest: int) -> float:
    """The correlation, inside of classes, of each image's side with its neighbours'."""
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
