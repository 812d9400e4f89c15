"""Fit the model of the stream to the images that are remembered: which of them are known, and by which parameters.

The package docstring states the model. `fit` is a pure function of the images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .appearance import Appearance, better_fitting, two_kinds
from .arrays import TINY, Floats, Indices, Singles, logit, sigmoid
from .fit_to_text import Centre, Units, units_of
from .options import FieldOptions
from .side_evidence import SideModel, fit_side
from .solve import COMPARED, ROUGH, SHARES, Graph, Parameters, Window, vote_evidence, votes_of


@dataclass(frozen=True, slots=True)
class StreamModel:
    """The fitted model.

    features:    centred features of the images [N, D].
    known:       P(known) of each image [N].
    best:        best class of each image [N].
    graph:       the nearest images of each image, itself left out.
    parameters:  one row of parameters.
    words:       evidence from the words; None without words.
    """

    units: Units
    features: Singles
    known: Floats
    best: Indices
    graph: Graph
    parameters: Parameters
    options: FieldOptions
    words: SideModel | None = None

    def log_odds(self, fit: Floats, best: Indices, votes: Floats, nearness: Floats) -> tuple[Floats, ...]:
        """Log-odds of known images: contributions of the prior, the text, the neighbours and the nearness."""
        found = self.parameters
        parts = (
            np.broadcast_to(logit(found.share), (1, len(fit))),
            found.text_evidence(fit, best),
            self.options.votes * vote_evidence(votes[None], *found.agreement),
            found.nearness.evidence(nearness, fit),
        )
        return tuple(part[0] for part in parts)

    def above_chance(self, fit: Floats) -> Floats:
        """How far a fit exceeds that of unknown images, in their standard deviations."""
        mean, deviation = (float(each[0, 0]) for each in self.parameters.unknown)
        return (fit - mean) / deviation

    @property
    def member_votes(self) -> Floats:
        """The votes for the images of the model itself."""
        return votes_of(self.graph, self.known)

    def votes(self, centred: Singles) -> Floats:
        """Share of known images among the nearest images, weighted by similarity."""
        cosines = centred @ self.features.T
        return votes_of(_nearest(cosines, neighbour_count(len(self.features), self.options.nearest_images)), self.known)


# Distance of the mean fits of known and of unknown images, in deviations, from which the text tells them apart well.
SEPARATED = 2.8
# Smallest effective number of classes among the known images, relative to all classes, for which appearance counts.
EVEN = 0.7


def neighbour_count(images: int, most: int) -> int:
    """Number of neighbours: a quarter of few images."""
    return max(COMPARED, min(most, images // 4))


def fit(
    rows: Singles,
    cosines: Floats,
    options: FieldOptions,
    prior: Centre | None = None,
    word_cosines: Floats | None = None,
) -> StreamModel:
    """Fit the model to unit features [N, D] and their cosines [N, C] to the classes.

    `word_cosines` is the largest cosine [N] of each image to a word.
    """
    best = (cosines if prior is None else prior.own_cosines(rows, cosines)).argmax(1)
    units = units_of(rows, cosines, np.ones(len(rows)), best, prior)
    # The centre and the scale belong to the known images; two rounds of the text alone find them roughly.
    for _ in range(2):
        window = _window(units, units.centre.own_cosines(rows, cosines), options)
        known = window.solve(window.starts(), ROUGH).best()[0]
        units = units_of(rows, cosines, np.maximum(known, SHARES[0]), window.best, prior)
    centred, own, nearness = units.centre.subtracted(rows, cosines)
    window = _window(units, own, options)
    graph, closest = _graphs(centred, neighbour_count(len(rows), options.nearest_images))
    window = replace(window, nearness=nearness, graph=graph, closest=closest)
    known, parameters = _with_appearance(window, centred, window.solve(window.starts()).best())
    model = StreamModel(units, centred, known, window.best, graph, parameters, options)
    if word_cosines is None:
        return model
    # The solution without words says what words tell about each kind; their evidence is then included once.
    advantage = cosines.max(1) - word_cosines
    words = fit_side(advantage, window.fit, known, options.prior_images)
    odds = np.sum(model.log_odds(window.fit, window.best, votes_of(graph, known), nearness), axis=0)
    known = sigmoid(odds + words.evidence(advantage, window.fit))
    return replace(model, known=known, words=fit_side(advantage, window.fit, known, options.prior_images))


def _with_appearance(window: Window, centred: Singles, found: tuple[Floats, Parameters]) -> tuple[Floats, Parameters]:
    """The solution from the division in two by appearance, if the text tells the two kinds apart badly.

    The solution with the larger sum of the variational objective and the evidence of appearance is returned. Where the
    text tells the kinds apart well, appearance misleads: kinds of unknown images differ as much from each other.
    """
    counts = np.bincount(window.best, found[0], window.classes) + TINY
    shares = counts / counts.sum()
    is_even = float(np.exp(-shares @ np.log(shares))) >= EVEN * window.classes
    if found[1].separation(found[0], window.best) >= SEPARATED or not is_even:
        return found
    side = better_fitting(two_kinds(centred, int(window.fit.argmin())), window.fit)
    both = window.solve(np.stack([found[0], np.where(side, 0.9, 0.1)]))
    appearance = Appearance.of(centred, window.best, window.classes)
    evidence = np.array([appearance.evidence(known) for known in both.known])
    return replace(both, objective=both.objective + np.maximum(evidence, 0.0)).best()


def _window(units: Units, own: Floats, options: FieldOptions) -> Window:
    """The images with these centred cosines, without neighbours."""
    return Window(units.fit(own), units.second_fit(own), own.argmax(1), own.shape[1], options)


def _graphs(centred: Singles, count: int) -> tuple[Graph, Graph]:
    """The `count` nearest images of each image, and the COMPARED nearest of these."""
    cosines = centred @ centred.T
    np.fill_diagonal(cosines, -9)
    nearest, weights = _nearest(cosines, count)
    closest = np.argpartition(weights, -min(COMPARED, weights.shape[1]), 1)[:, -COMPARED:]
    of_closest = np.take_along_axis(nearest, closest, 1), np.take_along_axis(weights, closest, 1)
    return (nearest, weights), _weighted(*of_closest)


def _nearest(cosines: Singles, count: int) -> Graph:
    """Indices [N, k] and weights [N, k] of the nearest images, weighted by similarity."""
    count = min(count, cosines.shape[1])
    nearest = np.argpartition(cosines, -count, 1)[:, -count:]
    return _weighted(nearest, np.maximum(cosines[np.arange(len(cosines))[:, None], nearest], 1e-3).astype(np.float64))


def _weighted(nearest: Indices, weights: Floats) -> Graph:
    return nearest, weights / weights.sum(1, keepdims=True)
