"""Evidence from a further number of each image, such as its distance to the centre or its advantage over the words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import TINY, Floats, clipped, log_normal


@dataclass(frozen=True, slots=True)
class SideModel:
    """The part of a number that the fit does not explain: mean and standard deviation for known and for unknown images.

    slope:  change of the number per unit of the fit, among images of the same kind.
    """

    slope: Floats
    known: tuple[Floats, Floats]
    unknown: tuple[Floats, Floats]

    @classmethod
    def none(cls, like: Floats) -> SideModel:
        """A model without evidence, of the shape of `like`."""
        zero, one = np.zeros_like(like), np.ones_like(like)
        return cls(zero, (zero, one), (zero, one))

    def row(self, number: int) -> SideModel:
        """The model of one of several solutions."""
        one = slice(number, number + 1)
        return SideModel(
            self.slope[one], (self.known[0][one], self.known[1][one]), (self.unknown[0][one], self.unknown[1][one])
        )

    def evidence(self, values: Floats, fit: Floats) -> Floats:
        """Log-likelihood ratio; constant beyond the two means, and zero if known images have no larger mean."""
        inside = clipped(values - self.slope * fit, self.unknown[0], np.maximum(self.unknown[0], self.known[0]))
        ratio = log_normal(inside, *self.known) - log_normal(inside, *self.unknown)
        return np.where(self.known[0] > self.unknown[0], ratio, 0.0)


def fit_side(values: Floats, fit: Floats, known: Floats, prior: float) -> SideModel:
    """Estimate both distributions with the probabilities [..., N] of the window's images as weights.

    `prior` is the weight, in images, of the mean and the deviation of all images together.
    """
    weights = np.stack([known, 1 - known])
    totals = weights.sum(-1, keepdims=True)
    own_fit, own_values = (each - (weights * each).sum(-1, keepdims=True) / (totals + TINY) for each in (fit, values))
    pulls = weights * own_fit
    slope = (pulls * own_values).sum((0, -1))[..., None] / ((pulls * own_fit).sum((0, -1))[..., None] + TINY)
    rest = values - slope * fit
    overall, variance = rest.mean(-1, keepdims=True), rest.var(-1, keepdims=True) + TINY
    means = ((weights * rest).sum(-1, keepdims=True) + prior * overall) / (totals + prior)
    squares = (weights * (rest - means) ** 2).sum(-1, keepdims=True)
    deviations = np.sqrt((squares + prior * variance) / (totals + prior))
    return SideModel(slope, (means[0], deviations[0]), (means[1], deviations[1]))
