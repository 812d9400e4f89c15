"""Fit the model of the stream to a window of recent images: which of them are known, and by which parameters.

The package docstring states the model. `fit` is a pure function of the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..core.otsu import otsu_split
from .appearance import Appearance, better_fitting, two_kinds
from .arrays import TINY, Floats, Indices, Singles, log_normal, logit, sigmoid
from .fit_to_text import Units, units_of
from .options import FieldOptions
from .side_evidence import SideModel, fit_side

# Iterations of one fit; the votes of neighbours gain their full weight during the first ones.
WARM, ITERATIONS = 4, 10
# Bounds of the estimated share of unknown images: they are never excluded, and never taken for certain.
SHARES = (0.02, 0.95)
# Smallest deviation of the fit of unknown images, in deviations of the second-best class of known images.
NARROWEST = 0.8


@dataclass(frozen=True, slots=True)
class StreamModel:
    """The fitted model.

    known:        P(known) of each image of the window.
    share:        estimated share of known images.
    unknown_mean: mean fit of unknown images.
    class_means:  mean fit of the known images of each class.
    known_spread: standard deviation of the fit of known images.
    agreement:    share of known images among the neighbours of known and of unknown images.
    nearness:     evidence from the distance to the centre of the known images.
    words:        evidence from the words; None without words.
    """

    units: Units
    features: Singles
    known: Floats
    share: float
    unknown_mean: float
    class_means: Floats
    known_spread: float
    agreement: tuple[float, float]
    nearness: SideModel
    options: FieldOptions
    words: SideModel | None = None

    def log_odds(self, fit: Floats, best: Indices, votes: Floats, nearness: Floats) -> tuple[Floats, ...]:
        """Log-odds of known images: contributions of the prior, the text, the neighbours and the nearness to the centre."""
        return (
            np.full(len(fit), logit(self.share)),
            _text_evidence(fit, self.class_means[best], self.known_spread, self.unknown_mean),
            self.options.votes * _vote_evidence(votes, *self.agreement),
            self.nearness.evidence(nearness, fit),
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
    units = units_of(rows, cosines, np.ones(len(rows)))
    # The centre and the scale belong to the known images; two rounds of the text alone find them roughly.
    for _ in range(2):
        _, own, _ = units.centred(rows, cosines)
        text = _Window(units.fit(own), own.argmax(1), own.shape[1], options)
        solutions = text.solve(), text.solve(_divided(text.excess))
        known = max(solutions, key=lambda found: found.objective).known
        units = units_of(rows, cosines, np.maximum(known, SHARES[0]))
    centred, own, nearness = units.centred(rows, cosines)
    excess, best = units.fit(own), own.argmax(1)
    graph = _graph(centred, neighbour_count(len(rows), options.nearest_images))
    window = _Window(excess, best, own.shape[1], options, graph, nearness)
    side = two_kinds(centred, int(excess.argmin()))
    advantage = None if word_cosines is None else cosines.max(1) - word_cosines
    starts = [None, better_fitting(side, excess), _divided(excess)]
    if advantage is not None:
        starts.append(np.where(advantage > 0, 0.9, 0.1))
    # Images of one kind that are given to a few classes exceed the mean cosine of these classes by little.
    kinds = better_fitting(side, (cosines - cosines.mean(0)).max(1))
    solution = _best(window, Appearance.of(centred, best, own.shape[1]), starts, kinds)
    units = units.rescaled(*solution.chance)
    excess = units.fit(own)
    model = StreamModel(
        units,
        centred,
        solution.known,
        solution.share,
        solution.unknown_mean,
        solution.class_means,
        solution.known_spread,
        solution.agreement,
        solution.nearness,
        options,
    )
    if advantage is None:
        return model
    # The solution without words says what words tell about each kind; their evidence is then included once.
    words = fit_side(advantage, excess, model.known, options.prior_images)
    odds = np.sum(model.log_odds(excess, best, _votes(graph, model.known), nearness), axis=0)
    known = sigmoid(odds + words.evidence(advantage, excess))
    return replace(model, known=known, words=fit_side(advantage, excess, known, options.prior_images))


def _divided(fit: Floats) -> Floats:
    """P(known) of each image if Otsu's threshold divides the fits."""
    return np.where(fit > otsu_split(fit).threshold, 0.9, 0.1)


def _best(window: _Window, appearance: Appearance, starts: list[Floats | None], kinds: Floats) -> _Solution:
    """Select the solution that explains the text, the neighbours and the appearance of the images best.

    Unknown images may fit better than chance only in the last solution, which starts from two kinds of images. It is considered only
    if the two kinds differ within classes, so that it cannot reject a class that merely fits badly.
    """
    solutions = [(found := window.solve(start), appearance.evidence(found.known)) for start in starts]
    other = window.solve(kinds, fits_better_than_chance=True)
    if (evidence := appearance.evidence(other.known)) > 0:
        solutions.append((other, evidence))
    return max(solutions, key=lambda pair: pair[0].objective + max(pair[1], 0.0))[0]


@dataclass(frozen=True, slots=True)
class _Solution:
    objective: float
    known: Floats
    share: float
    unknown_mean: float
    class_means: Floats
    known_spread: float
    agreement: tuple[float, float]
    nearness: SideModel
    chance: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Window:
    """The images of a window as the fit sees them; without a graph, by their text alone."""

    excess: Floats
    best: Indices
    classes: int
    options: FieldOptions
    graph: tuple[Indices, Floats] | None = None
    nearness: Floats | None = None

    def solve(self, start: Floats | None = None, fits_better_than_chance: bool = False) -> _Solution:
        """Expectation-maximisation from one start: the text alone, or a given P(known) of each image.

        `fits_better_than_chance` estimates the mean fit and the share of unknown images from their own probabilities.
        """
        excess, best, prior, chance = self.excess, self.best, self.options.prior_images, (0.0, 1.0)
        below = float((excess < 0).sum() + 1) / len(excess)
        share = 1 - unknown_share(below) if start is None else float(start.mean())
        top = self._top(excess)
        means, spread, agreement = np.full(self.classes, top), self.options.known_spread, (share, share)
        odds, nearness, unknown_mean = np.full(len(excess), logit(share)), SideModel.none(), 0.0
        known = sigmoid(odds + _text_evidence(excess, means[best], spread, 0.0)) if start is None else start
        for iteration in range(ITERATIONS):
            warmth = 1.0 if start is not None else min(1.0, (iteration + 1) / WARM)
            if not fits_better_than_chance:
                chance = self._chance(1 - known)
                excess = (self.excess - chance[0]) / chance[1]
                below = float((excess < 0).sum() + 1) / len(excess)
            means, spread = self._known_fits(excess, known)
            estimated = float(known.sum() + 0.75 * prior) / (len(excess) + prior)
            if fits_better_than_chance:
                share, unknown_mean = (
                    estimated,
                    max(float((1 - known) @ excess) / (float((1 - known).sum()) + prior), 0),
                )
            elif iteration >= WARM:
                known_below = float(known @ _below_zero(means[best] / spread)) / float(known.sum())
                share = max(estimated, 1 - unknown_share(below, known_below))
            odds = np.full(len(excess), logit(share))
            if self.graph is not None and self.nearness is not None:
                votes = _votes(self.graph, known)
                agreement = _agreement(votes, known, share, prior)
                nearness = fit_side(self.nearness, excess, known, prior)
                side = self.options.votes * _vote_evidence(votes, *agreement) + nearness.evidence(self.nearness, excess)
                odds = odds + warmth * side
            known = sigmoid(odds + _text_evidence(excess, means[best], spread, unknown_mean))
        objective = self._objective(excess, known, odds, means, spread, unknown_mean) - len(excess) * math.log(
            chance[1]
        )
        return _Solution(objective, known, share, unknown_mean, means, spread, agreement, nearness, chance)

    def _chance(self, unknown: Floats) -> tuple[float, float]:
        """Mean and standard deviation of the fit of unknown images: 0 and 1, or lower.

        If classes are alike, the second-best class of a known image fits better than any class fits an unknown image.
        """
        prior, total = self.options.prior_images, float(unknown.sum())
        mean = min(float(unknown @ self.excess) / (total + prior), 0.0)
        deviation = math.sqrt((float(unknown @ (self.excess - mean) ** 2) + prior) / (total + prior))
        return mean, min(max(deviation, NARROWEST), 1.0)

    def _top(self, excess: Floats) -> float:
        """Prior mean of the fit of known images: what the best fifth of the window exceeds."""
        return max(float(np.quantile(excess, 0.8)), self.options.known_distance)

    def _known_fits(self, excess: Floats, known: Floats) -> tuple[Floats, float]:
        """Mean fit of the known images of each class, and their common standard deviation."""
        best, options, top = self.best, self.options, self._top(excess)
        prior, total = options.prior_images, float(known.sum())
        overall = (float(known @ excess) + prior * top) / (total + prior)
        sums, counts = np.bincount(best, known * excess, self.classes), np.bincount(best, known, self.classes)
        means = np.maximum((sums + prior * overall) / (counts + prior), options.known_distance)
        deviations = float(known @ (excess - means[best]) ** 2)
        spread = math.sqrt((deviations + prior * options.known_spread**2) / (total + prior))
        return means, max(spread, options.known_spread)

    def _objective(
        self, excess: Floats, known: Floats, odds: Floats, means: Floats, spread: float, unknown_mean: float
    ) -> float:
        """Variational objective: text likelihood of both kinds, probability of each label given its neighbours, entropy."""
        of_known = log_normal(excess, means[self.best], spread) - np.logaddexp(0, -odds)
        of_unknown = log_normal(excess, unknown_mean, 1.0) - np.logaddexp(0, odds)
        entropy = -known * np.log(known + TINY) - (1 - known) * np.log(1 - known + TINY)
        return float((known * of_known + (1 - known) * of_unknown + entropy).sum())


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
    return sigmoid(-1.702 * means)


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


def _text_evidence(excess: Floats, means: Floats, spread: float, unknown_mean: float) -> Floats:
    """Log-likelihood ratio of the fit; constant beyond the two means, and zero if known images fit no better than unknown ones."""
    inside = np.clip(excess, np.minimum(unknown_mean, means), means)
    ratio = log_normal(inside, means, spread) - log_normal(inside, unknown_mean, 1.0)
    return np.where(means > unknown_mean, ratio, 0.0)
