"""Expectation-maximisation over the probabilities of the images of a window, from several starts at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arrays import TINY, Floats, Indices, clipped, log_normal, logit, sigmoid
from .options import FieldOptions
from .side_evidence import SideModel, fit_side

# Iterations of one fit; the share of known images keeps its value of the start during the first ones.
ITERATIONS, SHARE_HELD = 10, 4
# Share of known images before anything is known about the stream, and in the prior of the estimated share.
USUAL_SHARE = 0.75
# Quantile of the fits that is the prior mean of the fit of known images.
TOP = 0.8
# Bounds of the estimated share of unknown images: they are never excluded, and never taken for certain.
SHARES = (0.02, 0.95)
# Smallest deviation of the fit of unknown images, in deviations of the second-best class of known images.
NARROWEST = 0.8
# Largest slope of the second-best fit on the best fit; a slope of 1 has no point where the two meet.
STEEPEST = 0.9

Graph = tuple[Indices, Floats]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of S solutions.

    share:        share of known images [S, 1].
    unknown:      mean and standard deviation of the fit of unknown images, both [S, 1].
    class_means:  mean fit of the known images of each class [S, C].
    spread:       standard deviation of the fit of known images [S, 1].
    agreement:    share of known images among the neighbours of known and of unknown images, both [S, 1].
    nearness:     evidence from the distance to the centre of the known images.
    """

    share: Floats
    unknown: tuple[Floats, Floats]
    class_means: Floats
    spread: Floats
    agreement: tuple[Floats, Floats]
    nearness: SideModel

    def text_evidence(self, fit: Floats, best: Indices) -> Floats:
        """Log-likelihood ratio of the fit [S, N]; constant beyond the two means, zero if known images fit no better."""
        return _text_evidence(fit, self.class_means[:, best], self.spread, *self.unknown)

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
            self.nearness.row(number),
        )


@dataclass(frozen=True, slots=True)
class Solutions:
    """The result of S starts: variational objective [S], P(known) of each image [S, N] and parameters."""

    objective: Floats
    known: Floats
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Window:
    """The images of a window as the fit sees them.

    fit:       fit to the best class [N].
    second:    fit to the second-best class [N].
    best:      best class [N].
    nearness:  negative distance to the centre of the known images [N].
    graph:     indices [N, k] and weights [N, k] of the nearest images. If None, neighbours and nearness are left out.
    """

    fit: Floats
    second: Floats
    best: Indices
    classes: int
    options: FieldOptions
    nearness: Floats
    graph: Graph | None = None

    def text_alone(self) -> Floats:
        """P(known) of each image by its fit, with parameters that are not estimated."""
        share = 1 - unknown_share(float(np.mean(self.fit < 0)) + 1 / len(self.fit))
        top = np.maximum(np.quantile(self.fit, TOP), self.options.known_distance)
        text = _text_evidence(self.fit, np.full_like(self.fit, top), self.options.known_spread, 0.0, 1.0)
        return sigmoid(logit(share) + text)

    def solve(self, starts: Floats, free: NDArray[np.bool_] | None = None) -> Solutions:
        """Iterate from the given P(known) [S, N] of each image.

        Where `free` [S, 1] is true, unknown images may fit better than chance: their mean fit and their share are
        estimated from their own probabilities.
        """
        fit, best, prior, images = self.fit, self.best, self.options.prior_images, len(self.fit)
        known, share = starts, starts.mean(1, keepdims=True)
        free = np.zeros(share.shape, bool) if free is None else free
        members, highest = np.eye(self.classes)[best], np.quantile(fit, TOP)
        for iteration in range(ITERATIONS):
            totals = known.sum(1, keepdims=True)
            *unknown, chance = self._unknown_fits(known, free)
            floor, narrowest = chance + self.options.known_distance * unknown[1], self.options.known_spread * unknown[1]
            sums, top = known * fit, np.maximum(highest, floor)
            overall = (sums.sum(1, keepdims=True) + prior * top) / (totals + prior)
            class_means = np.maximum((sums @ members + prior * overall) / (known @ members + prior), floor)
            means = class_means[:, best]
            squares = (known * (fit - means) ** 2).sum(1, keepdims=True)
            spread = np.maximum(np.sqrt((squares + prior * narrowest**2) / (totals + prior)), narrowest)
            estimated = (totals + USUAL_SHARE * prior) / (images + prior)
            if iteration >= SHARE_HELD:
                below = ((fit < chance).sum(1, keepdims=True) + 1) / images
                known_below = (known * _below_zero((means - chance) / spread)).sum(1, keepdims=True) / totals
                share = np.maximum(estimated, 1 - unknown_share(below, known_below))
            share = np.where(free, estimated, share)
            odds, agreement, nearness = logit(share) + np.zeros_like(known), (share, share), SideModel.none(share)
            if self.graph is not None:
                votes = votes_of(self.graph, known)
                agreement = _agreement(votes, known, share, prior)
                nearness = fit_side(self.nearness, fit, known, prior)
                odds += self.options.votes * vote_evidence(votes, *agreement) + nearness.evidence(self.nearness, fit)
            known = sigmoid(odds + _text_evidence(fit, means, spread, *unknown))
        # The variational objective: likelihood of the fits, probability of the labels given their neighbours, entropy.
        of_known = log_normal(fit, means, spread) - np.logaddexp(0, -odds)
        of_unknown = log_normal(fit, *unknown) - np.logaddexp(0, odds)
        entropy = -known * np.log(known + TINY) - (1 - known) * np.log(1 - known + TINY)
        objective: Floats = (known * of_known + (1 - known) * of_unknown + entropy).sum(1)
        parameters = Parameters(share, (unknown[0], unknown[1]), class_means, spread, agreement, nearness)
        return Solutions(objective, known, parameters)

    def _lowest_chance(self, known: Floats) -> Floats:
        """Lowest mean fit that unknown images may have, given the P(known) [S, N] of the images; 0 or less [S, 1].

        It is 0 unless the second-best fit of known images rises with their best fit, as it does if classes are alike.
        """
        moments = np.stack([self.fit, self.second, self.fit**2, self.fit * self.second], 1)
        fit, second, square, product = (known @ moments / known.sum(1, keepdims=True)).T[:, :, None]
        slope = clipped((product - fit * second) / np.maximum(square - fit**2, TINY), 0.0, STEEPEST)
        lowest: Floats = slope * (second - fit) / (1 - slope)
        return lowest

    def _unknown_fits(self, known: Floats, free: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
        """Mean and standard deviation of the fit of unknown images, and the fit that counts as chance, each [S, 1].

        Mean and deviation are 0 and 1, or lower: if classes are alike, the second-best class of a known image fits
        better than any class fits an unknown image. Free solutions have the deviation 1 and a mean of 0 or higher.
        """
        unknown = 1 - known
        prior, totals = self.options.prior_images, unknown.sum(1, keepdims=True)
        mean = (unknown @ self.fit)[:, None] / (totals + prior)
        chance = np.where(free, 0.0, clipped(mean, self._lowest_chance(known), 0.0))
        squares = (unknown * (self.fit - chance) ** 2).sum(1, keepdims=True)
        deviation = clipped(np.sqrt((squares + prior) / (totals + prior)), np.where(free, 1.0, NARROWEST), 1.0)
        return np.where(free, np.maximum(mean, 0.0), chance), deviation, chance


def unknown_share(below: Floats | float, known_below: Floats | float = 0.0) -> Floats:
    """Largest share of unknown images that the fits allow.

    `below` is the share of all images that fit worse than chance, `known_below` that of known images. Half of the
    unknown images fit worse than chance.

    >>> round(float(unknown_share(0.3)), 2), round(float(unknown_share(0.3, 0.1)), 2)
    (0.6, 0.5)
    """
    share: Floats = clipped((below - known_below) / (0.5 - np.minimum(known_below, 0.4)), *SHARES)
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
