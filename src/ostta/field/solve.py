"""Expectation-maximisation over the probabilities of the images of a window, from several starts at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.otsu import otsu_split
from .arrays import TINY, Floats, Indices, clipped, log_normal, logit, sigmoid
from .options import FieldOptions
from .side_evidence import SideModel, fit_side

# Iterations of a fit and of a rough one; the share of known images keeps its value of the start during the first ones.
ITERATIONS, ROUGH, SHARE_HELD = 10, 5, 4
# Share of known images before anything is known about the stream, and in the prior of the estimated share.
USUAL_SHARE = 0.75
# Prior mean of the fit of known images: this quantile of the fits, but at least the second number.
TOP, USUAL_FIT = 0.8, 2.5
# Share of unknown images that fit worse than their mean. It is below one half, because one kind of unknown images may
# fit better than the others.
BELOW_MEAN = 0.4
# Bounds of the estimated share of unknown images: they are never excluded, and never taken for certain.
SHARES = (0.02, 0.95)
# Smallest deviation of the fit of unknown images, in deviations of the second-best class of known images.
NARROWEST = 0.8
# Largest slope of the second-best fit on the best fit; a slope of 1 has no point where the two meet.
STEEPEST = 0.9
# Prior of the share of known images whose best class is wrong, and its weight in images; number of nearest images that
# are compared to estimate it.
USUAL_ERRORS, ERRORS_WEIGHT, COMPARED = 0.05, 32.0, 3

Graph = tuple[Indices, Floats]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of S solutions.

    share:        share of known images [S, 1].
    unknown:      mean and standard deviation of the fit of unknown images, both [S, 1].
    class_means:  mean fit of the known images of each class [S, C].
    spread:       standard deviation of the fit of known images [S, 1].
    agreement:    share of known images among the neighbours of known and of unknown images, both [S, 1].
    errors:       share of known images whose best class is wrong [S, 1].
    nearness:     evidence from the distance to the centre of the known images.
    """

    share: Floats
    unknown: tuple[Floats, Floats]
    class_means: Floats
    spread: Floats
    agreement: tuple[Floats, Floats]
    errors: Floats
    nearness: SideModel

    def text_evidence(self, fit: Floats, best: Indices) -> Floats:
        """Log-likelihood ratio of the fit [S, N]; constant beyond the two means."""
        return _named_or_not(_text_evidence(fit, self.class_means[:, best], self.spread, *self.unknown), self.errors)[0]

    def separation(self, known: Floats, best: Indices) -> float:
        """Distance of the mean fits of known and of unknown images, in deviations, for one solution."""
        mean, deviation = (float(each[0, 0]) for each in self.unknown)
        of_known = float(known @ self.class_means[0, best] / known.sum())
        return (of_known - mean) / float(np.sqrt((self.spread[0, 0] ** 2 + deviation**2) / 2))

    def row(self, number: int) -> Parameters:
        """The parameters of one solution."""
        one = slice(number, number + 1)
        mean, deviation = self.unknown
        of_known, of_unknown = self.agreement
        return Parameters(
            self.share[one],
            (mean[one], deviation[one]),
            self.class_means[one],
            self.spread[one],
            (of_known[one], of_unknown[one]),
            self.errors[one],
            self.nearness.row(number),
        )


@dataclass(frozen=True, slots=True)
class Solutions:
    """The result of S starts: variational objective [S], P(known) of each image [S, N] and parameters."""

    objective: Floats
    known: Floats
    parameters: Parameters

    def best(self) -> tuple[Floats, Parameters]:
        """P(known) and parameters of the solution with the largest objective."""
        number = int(self.objective.argmax())
        return self.known[number], self.parameters.row(number)


@dataclass(frozen=True, slots=True)
class Window:
    """The images of a window as the fit sees them.

    fit:       fit to the best class [N].
    second:    fit to the second-best class [N].
    best:      best class [N].
    nearness:  negative distance to the centre of the known images [N].
    graph:     indices [N, k] and weights [N, k] of the nearest images.
    closest:   the same of the COMPARED nearest images. Without these three, the fit is to the text alone.
    """

    fit: Floats
    second: Floats
    best: Indices
    classes: int
    options: FieldOptions
    nearness: Floats | None = None
    graph: Graph | None = None
    closest: Graph | None = None

    def starts(self) -> Floats:
        """P(known) [2, N] of each image by its fit: by parameters that are not estimated, and by Otsu's threshold."""
        share = 2 * (np.mean(self.fit < 0, keepdims=True) + 1 / len(self.fit))
        text = _text_evidence(self.fit, np.full_like(self.fit, self._usual_fit()), 1.0, 0.0, 1.0)
        divided = np.where(self.fit > otsu_split(self.fit).threshold, 0.9, 0.1)
        return np.stack([sigmoid(logit(1 - clipped(share, *SHARES)) + text), divided])

    def _usual_fit(self) -> float:
        return max(float(np.quantile(self.fit, TOP)), USUAL_FIT)

    def solve(self, starts: Floats, iterations: int = ITERATIONS) -> Solutions:
        """Iterate from the given P(known) [S, N] of each image."""
        fit, best, prior, images = self.fit, self.best, self.options.prior_images, len(self.fit)
        usual_fit = self._usual_fit()
        known, share = starts, starts.mean(1, keepdims=True)
        members = np.eye(self.classes)[best]
        errors, named = np.zeros_like(share), np.ones_like(known)
        for iteration in range(iterations):
            mean, deviation = unknown = self._unknown_fits(known)
            # The mean and the spread of the known images are those of the images whose best class is right.
            weights = known * named
            totals = weights.sum(1, keepdims=True)
            floor = mean + self.options.known_distance * deviation
            sums, top = weights * fit, np.maximum(usual_fit, floor)
            overall = (sums.sum(1, keepdims=True) + prior * top) / (totals + prior)
            class_means = np.maximum((sums @ members + prior * overall) / (weights @ members + prior), floor)
            means = class_means[:, best]
            squares = (weights * (fit - means) ** 2).sum(1, keepdims=True)
            spread = np.sqrt((squares + prior * deviation**2) / (totals + prior))
            estimated = (known.sum(1, keepdims=True) + USUAL_SHARE * prior) / (images + prior)
            if iteration >= SHARE_HELD:
                below = ((fit < mean).sum(1, keepdims=True) + 1) / images
                known_below = (weights * _below_zero((means - mean) / spread)).sum(1, keepdims=True) / totals
                known_below = errors * BELOW_MEAN + (1 - errors) * known_below
                share = np.maximum(estimated, 1 - unknown_share(below, known_below))
            odds, agreement, nearness = logit(share) + np.zeros_like(known), (share, share), SideModel.none(share)
            if self.nearness is not None and self.graph is not None and self.closest is not None:
                votes, errors = votes_of(self.graph, known), self._errors(self.closest, known)
                agreement = _agreement(votes, known, share, prior)
                nearness = fit_side(self.nearness, fit, known, prior)
                odds += self.options.votes * vote_evidence(votes, *agreement) + nearness.evidence(self.nearness, fit)
            text, named = _named_or_not(_text_evidence(fit, means, spread, *unknown), errors)
            known = sigmoid(odds + text)
        # The variational objective: likelihood of the fits, probability of the labels given their neighbours, entropy.
        of_known = log_normal(fit, means, spread) - np.logaddexp(0, -odds)
        of_unknown = log_normal(fit, *unknown) - np.logaddexp(0, odds)
        entropy = -known * np.log(known + TINY) - (1 - known) * np.log(1 - known + TINY)
        objective: Floats = (known * of_known + (1 - known) * of_unknown + entropy).sum(1)
        parameters = Parameters(share, unknown, class_means, spread, agreement, errors, nearness)
        return Solutions(objective, known, parameters)

    def _errors(self, closest: Graph, known: Floats) -> Floats:
        """Share of known images whose best class is wrong: half of the share of nearest pairs of different classes."""
        nearest, weights = closest
        pairs = known[..., None] * known[..., nearest] * weights
        different = (pairs * (self.best[nearest] != self.best[:, None])).sum((-1, -2))
        share: Floats = (different / 2 + ERRORS_WEIGHT * USUAL_ERRORS / 2) / (pairs.sum((-1, -2)) + ERRORS_WEIGHT)
        return share[:, None]

    def _lowest_mean(self, known: Floats) -> Floats:
        """Lowest mean fit that unknown images may have, given the P(known) [S, N] of the images; 0 or less [S, 1].

        It is 0 unless the second-best fit of known images rises with their best fit, as it does if classes are alike.
        """
        moments = np.stack([self.fit, self.second, self.fit**2, self.fit * self.second], 1)
        fit, second, square, product = (known @ moments / known.sum(1, keepdims=True)).T[:, :, None]
        slope = clipped((product - fit * second) / np.maximum(square - fit**2, TINY), 0.0, STEEPEST)
        lowest: Floats = slope * (second - fit) / (1 - slope)
        return lowest

    def _unknown_fits(self, known: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the fit of unknown images, both [S, 1].

        They are 0 and 1, or lower: if classes are alike, the second-best class of a known image fits better than any
        class fits an unknown image.
        """
        unknown = 1 - known
        prior, totals = self.options.prior_images, unknown.sum(1, keepdims=True)
        mean = clipped((unknown @ self.fit)[:, None] / (totals + prior), self._lowest_mean(known), 0.0)
        squares = (unknown * (self.fit - mean) ** 2).sum(1, keepdims=True)
        return mean, clipped(np.sqrt((squares + prior) / (totals + prior)), NARROWEST, 1.0)


def unknown_share(below: Floats | float, known_below: Floats | float = 0.0) -> Floats:
    """Largest share of unknown images that the fits allow.

    `below` is the share of all images that fit worse than the mean of unknown images, `known_below` that of known
    images.

    >>> round(float(unknown_share(0.16)), 2), round(float(unknown_share(0.2, 0.1)), 2)
    (0.4, 0.33)
    """
    known_below = np.minimum(known_below, 0.8 * BELOW_MEAN)
    share: Floats = clipped((below - known_below) / (BELOW_MEAN - known_below), *SHARES)
    return share


def votes_of(graph: Graph, known: Floats) -> Floats:
    """Share of known images [..., N] among the neighbours, weighted by similarity."""
    nearest, weights = graph
    share: Floats = np.einsum("nk,...nk->...n", weights, known[..., nearest])
    return share


def vote_evidence(votes: Floats, of_known: Floats, of_unknown: Floats) -> Floats:
    """Log-likelihood ratio of one neighbour: zero where neighbours of both kinds are alike."""
    of_known, of_unknown = (clipped(each, TINY, 1 - TINY) for each in (of_known, of_unknown))
    evidence: Floats = votes * np.log(of_known / of_unknown) + (1 - votes) * np.log((1 - of_known) / (1 - of_unknown))
    return evidence


def _agreement(votes: Floats, known: Floats, share: Floats, prior: float) -> tuple[Floats, Floats]:
    """Share of known images among the neighbours of known and of unknown images."""
    of_known, of_unknown = (
        ((weights * votes).sum(1, keepdims=True) + prior * share) / (weights.sum(1, keepdims=True) + prior)
        for weights in (known, 1 - known)
    )
    return np.maximum(of_known, of_unknown + TINY), of_unknown


def _named_or_not(text: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """The evidence if some known images fit like unknown ones because their best class is wrong.

    Also returns the probability that the best class of a known image is right.
    """
    right = (1 - errors) * np.exp(clipped(text, -30.0, 30.0))
    evidence: Floats = np.log(right + errors)
    return evidence, right / (right + errors)


def _text_evidence(
    fit: Floats, means: Floats, spread: Floats | float, unknown: Floats | float, deviation: Floats | float
) -> Floats:
    """Log-likelihood ratio of the fit; constant beyond the two means, zero if known images fit no better."""
    inside = clipped(fit, np.minimum(unknown, means), means)
    ratio = log_normal(inside, means, spread) - log_normal(inside, unknown, deviation)
    return np.where(means > unknown, ratio, 0.0)


def _below_zero(means: Floats) -> Floats:
    """Probability that a normal variable with unit variance is below zero; a logistic approximation."""
    return sigmoid(-1.702 * means)
