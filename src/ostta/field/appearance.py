"""What the features of the recent images say about two kinds of images, without their fit to the text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arrays import TINY, Floats, Indices, Singles

# Power iterations for the first principal direction, and iterations of 2-means from it.
DIRECTION, TWO_MEANS = 12, 8


@dataclass(frozen=True, slots=True)
class Appearance:
    """Features of the window, grouped by their best class.

    members:     best class of each image as one-hot rows [N, C].
    variation:   sum of squared distances to the means of the classes.
    dimensions:  effective number of dimensions of this variation.
    """

    features: Singles
    members: Singles
    variation: float
    dimensions: float

    @classmethod
    def of(cls, features: Singles, best: Indices, classes: int) -> Appearance:
        """Group the features [N, D] by their best class."""
        members = np.zeros((len(features), classes), np.float32)
        members[np.arange(len(features)), best] = 1.0
        means = (members.T @ features) / (members.sum(0)[:, None] + TINY)
        left = features - means[best]
        squares = left.T @ left if left.shape[1] < len(left) else left @ left.T
        variation = float(np.einsum("nd,nd->", left, left))
        dimensions = variation**2 / (float(np.einsum("ij,ij->", squares, squares)) + TINY)
        return cls(features, members, variation + TINY, dimensions)

    def evidence(self, known: Floats) -> float:
        """Log-likelihood that known and unknown images of a class look different, less the cost of the second means.

        If no image is unknown, the images that are given to one class look alike, however badly they fit. The cost is
        that of the Bayesian information criterion.
        """
        images, classes = len(self.members), int(self.members.shape[1])
        of_known = self.members * known[:, None].astype(np.float32)
        counts, known_counts = self.members.sum(0), of_known.sum(0)
        unknown_counts = counts - known_counts
        known_means = (of_known.T @ self.features) / (known_counts[:, None] + TINY)
        unknown_means = ((self.members - of_known).T @ self.features) / (unknown_counts[:, None] + TINY)
        weights = known_counts * unknown_counts / (counts + TINY)
        between = float(weights @ ((known_means - unknown_means) ** 2).sum(1))
        explained = min(between / self.variation, 1 - TINY)
        return 0.5 * self.dimensions * (-images * math.log1p(-explained) - classes * math.log(images))


def two_kinds(features: Singles, first: int) -> NDArray[np.bool_]:
    """Divide the window in two: 2-means from the first principal direction, found from the image `first`."""
    left = features - features.mean(0)
    direction = left[first]
    for _ in range(DIRECTION):
        direction = (left @ direction) @ left
        direction = direction / (np.linalg.norm(direction) + 1e-12)
    side: NDArray[np.bool_] = left @ direction > 0
    for _ in range(TWO_MEANS):
        if side.all() or not side.any():
            break
        one, other = features[side].mean(0), features[~side].mean(0)
        new = features @ (one - other) > (one @ one - other @ other) / 2
        if (new == side).all():
            break
        side = new
    return side


def better_fitting(side: NDArray[np.bool_], fit: Floats) -> NDArray[np.bool_]:
    """Choose the part of the window that fits better as the known images."""
    worse = side.any() and not side.all() and fit[side].mean() < fit[~side].mean()
    return ~side if worse else side
