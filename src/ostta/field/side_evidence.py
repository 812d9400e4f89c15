"""Evidence from a further number of each image, such as its distance to the centre or its advantage over the words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import TINY, Floats, log_normal


@dataclass(frozen=True, slots=True)
class SideModel:
    """The part of a number that the fit does not explain: mean and standard deviation for known and for unknown images.

    slope:  change of the number per unit of the fit, among images of the same kind.
    """

    slope: float
    known: tuple[float, float]
    unknown: tuple[float, float]

    @classmethod
    def none(cls) -> SideModel:
        """The model that gives no evidence."""
        return cls(0.0, (0.0, 1.0), (0.0, 1.0))

    def evidence(self, values: Floats, fit: Floats) -> Floats:
        """Log-likelihood ratio; constant beyond the two means, and zero if known images have no larger mean."""
        if self.known[0] <= self.unknown[0]:
            return np.zeros(len(fit))
        inside = np.clip(values - self.slope * fit, self.unknown[0], self.known[0])
        return log_normal(inside, *self.known) - log_normal(inside, *self.unknown)


def fit_side(values: Floats, fit: Floats, known: Floats, prior: float) -> SideModel:
    """Estimate both distributions with the probabilities of the window's images as weights.

    `prior` is the weight, in images, of the mean and the deviation of all images together.
    """
    weights = np.stack([known, 1 - known])
    totals = weights.sum(1, keepdims=True) + TINY
    own_fit, own_values = fit - weights @ fit[:, None] / totals, values - weights @ values[:, None] / totals
    slope = float((weights * own_fit * own_values).sum() / ((weights * own_fit**2).sum() + TINY))
    rest = values - slope * fit
    overall, variance = float(rest.mean()), float(rest.var()) + TINY

    def kind(weight: Floats) -> tuple[float, float]:
        total = float(weight.sum()) + prior
        mean = (float(weight @ rest) + prior * overall) / total
        return mean, float(np.sqrt((float(weight @ (rest - mean) ** 2) + prior * variance) / total))

    return SideModel(slope, kind(known), kind(1 - known))
