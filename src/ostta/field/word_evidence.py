"""What words add to the fit: the advantage of the best class over the best word.

The package docstring states the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class WordModel:
    """The part of the advantage that the fit does not explain: mean and standard deviation for known and for unknown images.

    slope:  change of the advantage per unit of the fit, among images of the same kind.
    """

    slope: float
    known: tuple[float, float]
    unknown: tuple[float, float]

    def evidence(self, advantage: Floats, fit: Floats) -> Floats:
        """Log-likelihood ratio; constant beyond the two means, and zero if known images have no larger mean."""
        (of_known, known_spread), (of_unknown, unknown_spread) = self.known, self.unknown
        if of_known <= of_unknown:
            return np.zeros(len(fit))
        inside = np.clip(advantage - self.slope * fit, of_unknown, of_known)
        of_unknowns: Floats = 0.5 * ((inside - of_unknown) / unknown_spread) ** 2 + np.log(unknown_spread)
        of_knowns: Floats = 0.5 * ((inside - of_known) / known_spread) ** 2 + np.log(known_spread)
        return of_unknowns - of_knowns


def fit_words(advantage: Floats, fit: Floats, known: Floats, prior: float) -> WordModel:
    """Estimate both distributions with the probabilities of the window's images as weights.

    `prior` is the weight, in images, of the mean and the deviation of all images together.
    """
    weights = np.stack([known, 1 - known])
    totals = weights.sum(1, keepdims=True) + TINY
    own_fit, own_advantage = fit - weights @ fit[:, None] / totals, advantage - weights @ advantage[:, None] / totals
    slope = float((weights * own_fit * own_advantage).sum() / ((weights * own_fit**2).sum() + TINY))
    rest = advantage - slope * fit
    overall, variance = float(rest.mean()), float(rest.var()) + TINY

    def kind(weight: Floats) -> tuple[float, float]:
        total = float(weight.sum()) + prior
        mean = (float(weight @ rest) + prior * overall) / total
        return mean, float(np.sqrt((float(weight @ (rest - mean) ** 2) + prior * variance) / total))

    return WordModel(slope, kind(known), kind(1 - known))
