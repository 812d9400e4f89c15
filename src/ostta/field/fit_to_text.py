"""How much better an image fits its best class than chance, in units of the second-best class of known images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from .arrays import Floats, Indices, Singles

# Weight of the prior centre in the centre of each class, in images.
PRIOR_WEIGHT = 8.0


@dataclass(frozen=True, slots=True)
class Centre:
    """A feature [D] and its cosines [C] to the classes."""

    features: Singles
    cosines: Floats

    def subtracted(self, rows: Singles, cosines: Floats) -> tuple[Singles, Floats, Floats]:
        """Unit features after the centre is subtracted, their cosines to the classes, and the nearness to the centre.

        The nearness is the negative distance.
        """
        left = rows - self.features
        lengths = np.sqrt(np.einsum("nd,nd->n", left, left))[:, None] + 1e-12
        return left / lengths, (cosines - self.cosines) / lengths, -lengths[:, 0].astype(np.float64)

    def own_cosines(self, rows: Singles, cosines: Floats) -> Floats:
        """The cosines of `subtracted` alone. The features have unit length, so no other features are computed."""
        squares = 1 - 2 * (rows @ self.features).astype(np.float64) + float(self.features @ self.features)
        own: Floats = (cosines - self.cosines) / np.sqrt(np.maximum(squares, 1e-12))[:, None]
        return own


@dataclass(frozen=True, slots=True)
class Units:
    """The centre of the known images, and the scale of the fit: mean and spread of the second-best class."""

    centre: Centre
    mean: float
    spread: float

    def fit(self, cosines: Floats) -> Floats:
        """How far the best of the centred cosines [N, C] exceeds chance, in deviations."""
        return self._in_deviations(cosines.max(1))

    def second_fit(self, cosines: Floats) -> Floats:
        """How far the second-best of the centred cosines [N, C] exceeds chance, in deviations."""
        return self._in_deviations(_second_best(cosines))

    def _in_deviations(self, cosines: Floats) -> Floats:
        excess: Floats = (cosines - self.mean) / self.spread
        return excess


def units_of(rows: Singles, cosines: Floats, known: Floats, best: Indices, prior: Centre | None) -> Units:
    """Centre and scale of the images of a window, weighted by their P(known).

    With a prior centre, the centre is the mean of the centres of the classes, so that frequent classes do not move it,
    and a class that was not seen counts as the prior centre.
    """
    weights = known / known.sum()
    if prior is None:
        centre = Centre(weights.astype(np.float32) @ rows, weights @ cosines)
    else:
        members = np.zeros((len(rows), cosines.shape[1]), np.float32)
        members[np.arange(len(rows)), best] = known
        of_class = members / (members.sum(0) + np.float32(PRIOR_WEIGHT)) / np.float32(cosines.shape[1])
        of_image = of_class.sum(1)
        left = 1 - float(of_image.sum())
        centre = Centre(of_image @ rows + np.float32(left) * prior.features, of_image @ cosines + left * prior.cosines)
    own = centre.own_cosines(rows, cosines)
    second = _second_best(own)
    mean = float(weights @ second)
    spread = max(float(np.sqrt(weights @ (second - mean) ** 2)), 1e-6)
    return Units(centre, mean + few_class_correction(own.shape[1]) * spread, spread)


def _second_best(cosines: Floats) -> Floats:
    """Second-largest cosine of each image. With one class, its lower half takes the place."""
    if cosines.shape[1] == 1:
        return np.minimum(cosines[:, 0], np.median(cosines[:, 0]))
    second: Floats = np.partition(cosines, -2, 1)[:, -2]
    return second


@cache
def few_class_correction(classes: int) -> float:
    """How much better an unknown image fits its best class than a known image its second-best, in deviations.

    An unknown image has one wrong class more, and a known image is pushed away from the wrong ones by the centring:
    twice the difference between the expected maxima of C and of C - 1 normal variables. It matters for few classes
    only.

    >>> [round(few_class_correction(count), 2) for count in (2, 3, 10)]
    [1.13, 0.56, 0.11]
    """
    return 2 * (_expected_maximum(classes) - _expected_maximum(classes - 1)) if classes > 1 else 0.0


def _expected_maximum(count: int) -> float:
    values = np.linspace(-8, 8, 4001)
    below = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in values.tolist()]) ** count
    return float((np.diff(below, prepend=0.0) * values).sum())
