"""Fit the model of the stream to a window of recent images: which of them are known, and by which parameters.

The package docstring states the model. `fit` is a pure function of the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .options import FieldOptions
from .word_evidence import WordModel, fit_words

Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Indices: TypeAlias = NDArray[np.intp]

# Iterations of the fit; the votes of neighbours gain their full weight during the first ones.
WARM, ITERATIONS = 10, 24
# Power iterations for the first principal direction, and iterations of 2-means from it.
DIRECTION, TWO_MEANS = 12, 8
# Bounds of the estimated share of unknown images: none is ever impossible, and all are never certain.
SHARES = (0.02, 0.95)
# Known images lie at least so many of their deviations above chance when those below chance are counted.
CLEAR = 1.3
TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Units:
    """The centre of the known images, and the scale of the fit: mean and spread of the second-best class."""

    centre: Singles
    centre_cosines: Floats
    mean: float
    spread: float

    def centred(self, rows: Singles, cosines: Floats) -> tuple[Singles, Floats]:
        """Unit features and their cosines to the classes, after the centre is subtracted."""
        return _centred(rows, cosines, self.centre, self.centre_cosines)

    def fit(self, cosines: Floats) -> Floats:
        """How far the best of the centred cosines [N, C] exceeds chance, in deviations."""
        excess: Floats = (cosines.max(1) - self.mean) / self.spread
        return excess


@dataclass(frozen=True, slots=True)
class StreamModel:
    """The fitted model.

    known:        P(known) of each image of the window.
    share:        estimated share of known images.
    class_means:  mean fit of the known images of each class.
    known_spread: standard deviation of the fit of known images.
    agreement:    share of known images among the neighbours of known and of unknown images.
    words:        what the words add; None without words.
    """

    units: Units
    features: Singles
    known: Floats
    share: float
    class_means: Floats
    known_spread: float
    agreement: tuple[float, float]
    options: FieldOptions
    words: WordModel | None = None

    def log_odds(self, fit: Floats, best: Indices, votes: Floats) -> tuple[Floats, Floats, Floats]:
        """Log-odds of known images: the prior, the text's and the neighbours' contribution."""
        return (
            np.full(len(fit), _logit(self.share)),
            _text_evidence(fit, self.class_means[best], self.known_spread),
            self.options.votes * _vote_evidence(votes, *self.agreement),
        )

    def votes(self, centred: Singles) -> Floats:
        """Share of known images among the nearest images of the window, weighted by similarity."""
        cosines = centred @ self.features.T
        return _votes(_nearest(cosines, neighbour_count(len(self.features), self.options.nearest_images)), self.known)


def neighbour_count(images: int, most: int) -> int:
    """Number of neighbours in a window: a quarter of a young one."""
    return max(1, min(most, images // 4))


def fit(rows: Singles, cosines: Floats, options: FieldOptions, word_cosines: Floats | None = None) -> StreamModel:
    """Fit the model to the unit features [N, D] of a window and their cosines [N, C] to the classes.

    `word_cosines` is the largest cosine [N] of each image to a word.
    """
    known = np.ones(len(rows))
    units = _units(rows, cosines, known)
    # The centre and the scale belong to the known images; two rounds of the text alone find them roughly.
    for _ in range(2):
        _, own = units.centred(rows, cosines)
        known = _solve(units.fit(own), own.argmax(1), own.shape[1], None, None, options).known
        units = _units(rows, cosines, np.maximum(known, SHARES[0]))
    centred, own = units.centred(rows, cosines)
    excess, best = units.fit(own), own.argmax(1)
    graph = _graph(centred, neighbour_count(len(rows), options.nearest_images))
    starts = [None, _two_kinds(centred, excess)]
    advantage = None if word_cosines is None else cosines.max(1) - word_cosines
    if advantage is not None:
        starts.append(np.where(advantage > 0, 0.9, 0.1))
    solution = max(
        (_solve(excess, best, own.shape[1], graph, start, options) for start in starts),
        key=lambda found: found.objective,
    )
    model = StreamModel(
        units,
        centred,
        solution.known,
        solution.share,
        solution.class_means,
        solution.known_spread,
        solution.agreement,
        options,
    )
    if advantage is None:
        return model
    # The solution without words says what words tell about each kind; their evidence is then included once.
    words = fit_words(advantage, excess, model.known, options.prior_images)
    prior, text, neighbours = model.log_odds(excess, best, _votes(graph, model.known))
    known = _sigmoid(prior + text + neighbours + words.evidence(advantage, excess))
    return replace(model, known=known, words=fit_words(advantage, excess, known, options.prior_images))


@dataclass(frozen=True, slots=True)
class _Solution:
    objective: float
    known: Floats
    share: float
    class_means: Floats
    known_spread: float
    agreement: tuple[float, float]


def _solve(
    excess: Floats,
    best: Indices,
    classes: int,
    graph: tuple[Indices, Floats] | None,
    start: Floats | None,
    options: FieldOptions,
) -> _Solution:
    """Expectation-maximisation from one start: the text alone, or a given P(known) of each image."""
    below = float((excess < 0).sum() + 1) / len(excess)
    share = 1 - unknown_share(below)
    top = max(float(np.quantile(excess, 0.8)), options.known_distance)
    means, spread, agreement = np.full(classes, top), options.known_spread, (share, share)
    odds = np.full(len(excess), _logit(share))
    known = _sigmoid(odds + _text_evidence(excess, means[best], spread)) if start is None else start
    for iteration in range(ITERATIONS):
        warmth = 1.0 if start is not None else min(1.0, (iteration + 1) / WARM)
        means, spread = _known_fits(excess, best, known, top, classes, options)
        if iteration >= WARM:
            known_below = float(known @ _below_zero(np.maximum(means[best] / spread, CLEAR))) / float(known.sum())
            estimated = float(known.sum() + 0.75 * options.prior_images) / (len(excess) + options.prior_images)
            share = max(estimated, 1 - unknown_share(below, known_below))
        odds = np.full(len(excess), _logit(share))
        if graph is not None:
            votes = _votes(graph, known)
            agreement = _agreement(votes, known, share, options.prior_images)
            odds = odds + warmth * options.votes * _vote_evidence(votes, *agreement)
        known = _sigmoid(odds + _text_evidence(excess, means[best], spread))
    # Variational objective: text likelihood of both kinds, probability of each label given its neighbours, entropy.
    of_known = _log_normal(excess, means[best], spread) - np.logaddexp(0, -odds)
    of_unknown = _log_normal(excess, 0.0, 1.0) - np.logaddexp(0, odds)
    entropy = -known * np.log(known + TINY) - (1 - known) * np.log(1 - known + TINY)
    objective = float((known * of_known + (1 - known) * of_unknown + entropy).sum())
    return _Solution(objective, known, share, means, spread, agreement)


def _known_fits(
    excess: Floats, best: Indices, known: Floats, top: float, classes: int, options: FieldOptions
) -> tuple[Floats, float]:
    """Mean fit of the known images of each class, and their common standard deviation."""
    prior, total = options.prior_images, float(known.sum())
    overall = (float(known @ excess) + prior * top) / (total + prior)
    sums, counts = np.bincount(best, known * excess, classes), np.bincount(best, known, classes)
    means = np.maximum((sums + prior * overall) / (counts + prior), options.known_distance)
    deviations = float(known @ (excess - means[best]) ** 2)
    spread = math.sqrt((deviations + prior * options.known_spread**2) / (total + prior))
    return means, max(spread, options.known_spread)


def unknown_share(below: float, known_below: float = 0.0) -> float:
    """Largest share of unknown images that the fits allow.

    `below` is the share of all images that fit worse than chance, `known_below` that of known images. Half of the unknown images
    fit worse than chance.

    >>> round(unknown_share(0.3), 2), round(unknown_share(0.3, 0.1), 2)
    (0.6, 0.5)
    """
    return float(np.clip((below - known_below) / (0.5 - min(known_below, 0.4)), *SHARES))


def _below_zero(means: Floats) -> Floats:
    """Probability that a normal variable with unit variance is below zero; a logistic approximation."""
    return _sigmoid(-1.702 * means)


def _units(rows: Singles, cosines: Floats, known: Floats) -> Units:
    weights = known / known.sum()
    centre, centre_cosines = (weights.astype(np.float32) @ rows), weights @ cosines
    own = _centred(rows, cosines, centre, centre_cosines)[1]
    second = _second_best(own)
    mean = float(weights @ second)
    spread = max(float(np.sqrt(weights @ (second - mean) ** 2)), 1e-6)
    return Units(centre, centre_cosines, mean + more_classes(own.shape[1]) * spread, spread)


def _second_best(cosines: Floats) -> Floats:
    """Second-largest cosine of each image. With one class, its lower half takes the place."""
    if cosines.shape[1] == 1:
        return np.minimum(cosines[:, 0], np.median(cosines[:, 0]))
    second: Floats = np.partition(cosines, -2, 1)[:, -2]
    return second


@cache
def more_classes(classes: int) -> float:
    """How much better an unknown image fits its best class than a known image its second-best, in deviations.

    An unknown image has one wrong class more, and a known image is pushed away from the wrong ones by the centring: twice the
    difference between the expected maxima of C and of C - 1 normal variables. It matters for few classes only.

    >>> [round(more_classes(count), 2) for count in (2, 3, 10)]
    [1.13, 0.56, 0.11]
    """
    return 2 * (_expected_maximum(classes) - _expected_maximum(classes - 1)) if classes > 1 else 0.0


def _expected_maximum(count: int) -> float:
    values = np.linspace(-8, 8, 4001)
    below = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in values.tolist()]) ** count
    return float((np.diff(below, prepend=0.0) * values).sum())


def _centred(rows: Singles, cosines: Floats, centre: Singles, centre_cosines: Floats) -> tuple[Singles, Floats]:
    left = rows - centre
    lengths = np.sqrt(np.einsum("nd,nd->n", left, left))[:, None] + 1e-12
    return left / lengths, (cosines - centre_cosines) / lengths


def _graph(centred: Singles, count: int) -> tuple[Indices, Floats]:
    cosines = centred @ centred.T
    np.fill_diagonal(cosines, -9)
    return _nearest(cosines, count)


def _nearest(cosines: Singles, count: int) -> tuple[Indices, Floats]:
    """Indices [N, k] and weights [N, k] of the nearest images, weighted by similarity."""
    count = min(count, cosines.shape[1])
    nearest = np.argpartition(cosines, -count, 1)[:, -count:]
    weights: Floats = np.maximum(np.take_along_axis(cosines, nearest, 1), 1e-3).astype(np.float64)
    return nearest, weights / weights.sum(1, keepdims=True)


def _votes(graph: tuple[Indices, Floats], known: Floats) -> Floats:
    nearest, weights = graph
    share: Floats = np.einsum("nk,nk->n", weights, known[nearest])
    return share


def _agreement(votes: Floats, known: Floats, share: float, prior: float) -> tuple[float, float]:
    """Share of known images among the neighbours of known and of unknown images."""
    unknown = 1 - known
    of_known = (float(known @ votes) + prior * share) / (float(known.sum()) + prior)
    of_unknown = (float(unknown @ votes) + prior * share) / (float(unknown.sum()) + prior)
    return max(of_known, of_unknown + TINY), of_unknown


def _vote_evidence(votes: Floats, of_known: float, of_unknown: float) -> Floats:
    """Log-likelihood ratio of one neighbour: zero where neighbours of both kinds are alike."""
    of_known, of_unknown = (min(max(each, TINY), 1 - TINY) for each in (of_known, of_unknown))
    evidence: Floats = votes * math.log(of_known / of_unknown) + (1 - votes) * math.log(
        (1 - of_known) / (1 - of_unknown)
    )
    return evidence


def _text_evidence(excess: Floats, means: Floats, spread: float) -> Floats:
    """Log-likelihood ratio of the fit; constant beyond the two means, so that it never decreases."""
    inside = np.clip(excess, 0.0, means)
    return _log_normal(inside, means, spread) - _log_normal(inside, 0.0, 1.0)


def _log_normal(values: Floats, mean: Floats | float, spread: float) -> Floats:
    density: Floats = -0.5 * ((values - mean) / spread) ** 2 - np.log(spread)
    return density


def _two_kinds(centred: Singles, excess: Floats) -> Floats:
    """A second start: the window divided in two by appearance, the better-fitting part as known."""
    left = centred - centred.mean(0)
    direction = left[int(excess.argmin())]
    for _ in range(DIRECTION):
        direction = (left @ direction) @ left
        direction = direction / (np.linalg.norm(direction) + 1e-12)
    side = left @ direction > 0
    for _ in range(TWO_MEANS):
        if side.all() or not side.any():
            break
        first, second = centred[side].mean(0), centred[~side].mean(0)
        new = centred @ (first - second) > (first @ first - second @ second) / 2
        if (new == side).all():
            break
        side = new
    if side.any() and not side.all() and excess[side].mean() < excess[~side].mean():
        side = ~side
    return np.where(side, 0.9, 0.1)


def _sigmoid(values: Floats) -> Floats:
    result: Floats = 1 / (1 + np.exp(-np.clip(values, -30, 30)))
    return result


def _logit(share: float) -> float:
    return float(np.log(share / (1 - share)))
