"""Fit the model of the stream to a window of recent images: which of them are known, and by which parameters.

The package docstring states the model. `fit` is a pure function of the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.otsu import otsu_split
from .appearance import Appearance, better_fitting, two_kinds
from .arrays import Floats, Indices, Singles, logit, sigmoid
from .fit_to_text import Units, units_of
from .options import FieldOptions
from .side_evidence import SideModel, fit_side
from .solve import SHARES, Graph, Parameters, Window, vote_evidence, votes_of


@dataclass(frozen=True, slots=True)
class StreamModel:
    """The fitted model.

    features:    centred features of the window [N, D].
    known:       P(known) of each image of the window [N].
    parameters:  one row of parameters.
    words:       evidence from the words; None without words.
    """

    units: Units
    features: Singles
    known: Floats
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

    def votes(self, centred: Singles) -> Floats:
        """Share of known images among the nearest images of the window, weighted by similarity."""
        cosines = centred @ self.features.T
        return votes_of(_nearest(cosines, neighbour_count(len(self.features), self.options.nearest_images)), self.known)


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
        window = _window(units, rows, cosines, options)[0]
        rough = window.solve(np.stack([window.text_alone(), _divided(window.fit)]))
        units = units_of(rows, cosines, np.maximum(rough.known[rough.objective.argmax()], SHARES[0]))
    window, centred = _window(units, rows, cosines, options)
    graph = _graph(centred, neighbour_count(len(rows), options.nearest_images))
    window = replace(window, graph=graph)
    side = two_kinds(centred, int(window.fit.argmin()))
    advantage = None if word_cosines is None else cosines.max(1) - word_cosines
    starts = [window.text_alone(), _start(better_fitting(side, window.fit)), _divided(window.fit)]
    if advantage is not None:
        starts.append(_start(advantage > 0))
    # Images of one kind that are given to a few classes exceed the mean cosine of these classes by little.
    starts.append(_start(better_fitting(side, (cosines - cosines.mean(0)).max(1))))
    known, parameters = _best(window, np.stack(starts), Appearance.of(centred, window.best, window.classes))
    model = StreamModel(units, centred, known, parameters, options)
    if advantage is None:
        return model
    # The solution without words says what words tell about each kind; their evidence is then included once.
    words = fit_side(advantage, window.fit, known, options.prior_images)
    votes = votes_of(graph, known)
    odds = np.sum(model.log_odds(window.fit, window.best, votes, window.nearness), axis=0)
    known = sigmoid(odds + words.evidence(advantage, window.fit))
    return replace(model, known=known, words=fit_side(advantage, window.fit, known, options.prior_images))


def _window(units: Units, rows: Singles, cosines: Floats, options: FieldOptions) -> tuple[Window, Singles]:
    """The window in the given units, without neighbours, and its centred features."""
    centred, own, nearness = units.centred(rows, cosines)
    return Window(units.fit(own), units.second_fit(own), own.argmax(1), own.shape[1], options, nearness), centred


def _best(window: Window, starts: Floats, appearance: Appearance) -> tuple[Floats, Parameters]:
    """P(known) and parameters of the solution that explains text, neighbours and appearance of the images best.

    Unknown images may fit better than chance only in the last solution. It is considered only if the two kinds of
    images differ within classes, so that it cannot reject a class that merely fits badly.
    """
    last = np.arange(len(starts))[:, None] == len(starts) - 1
    found = window.solve(starts, free=last)
    evidence = np.array([appearance.evidence(known) for known in found.known])
    total = found.objective + np.maximum(evidence, 0.0)
    number = int((total if evidence[-1] > 0 else total[:-1]).argmax())
    return found.known[number], found.parameters.row(number)


def _start(known: NDArray[np.bool_]) -> Floats:
    """P(known) of each image at a start."""
    return np.where(known, 0.9, 0.1)


def _divided(fit: Floats) -> Floats:
    """The start at which Otsu's threshold divides the fits."""
    return _start(fit > otsu_split(fit).threshold)


def _graph(centred: Singles, count: int) -> Graph:
    cosines = centred @ centred.T
    np.fill_diagonal(cosines, -9)
    return _nearest(cosines, count)


def _nearest(cosines: Singles, count: int) -> Graph:
    """Indices [N, k] and weights [N, k] of the nearest images, weighted by similarity."""
    count = min(count, cosines.shape[1])
    nearest = np.argpartition(cosines, -count, 1)[:, -count:]
    weights: Floats = np.maximum(cosines[np.arange(len(cosines))[:, None], nearest], 1e-3).astype(np.float64)
    return nearest, weights / weights.sum(1, keepdims=True)
