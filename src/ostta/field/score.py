"""The score `field`: log-odds that an image is known, under a model fitted to the recent images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..core.banks import feature_row, named
from ..core.checks import split, stored_count
from ..core.types import Error, Look, Scored
from ..scores.base import Setting
from ..scores.window import Floats, Singles, WindowScore
from .arrays import logit
from .model import StreamModel, fit, neighbour_count
from .options import FieldOptions
from .solve import USUAL_SHARE
from .words import Words, expanded

# Log-odds before the first fit.
PRIOR = math.log(USUAL_SHARE / (1 - USUAL_SHARE))


class FieldScore(WindowScore):
    """Log-odds that an image is known; 0 is a probability of one half.

    >>> prediction = ostta.load("embedded", ["cat", "dog"]).step(image)
    >>> round(prediction.probability, 2), prediction.undecided
    (0.75, True)
    """

    Options = FieldOptions
    about = "log-odds that an image is known, by its fit to the classes and the recent images that look like it: ours"
    scale: float | None = None
    first = 8

    def __init__(self, options: FieldOptions, setting: Setting) -> None:
        self.options = options
        super().__init__(setting, options.recent_images, options.fit_every)
        encoded = setting.encode_words(expanded(options.words)) if options.words else {}
        self.words = Words.of(encoded, self._classifier)

    @property
    def warming_up(self) -> bool:
        return self.seen < self.options.undecided_images

    def forget(self) -> None:
        self._model: StreamModel | None = None
        # Largest cosine to a word of each place of the window, and the number of images compared with the words.
        self._word_cosines: Floats = np.zeros(self._capacity)
        self._compared = 0

    def fit(self, rows: Singles, cosines: Floats) -> None:
        self._model = fit(rows, cosines, self.options, self._cosines_to_words(rows))

    def fit_set(self, rows: Singles) -> list[Scored]:
        self.reset()
        if len(rows) < self.first:
            self._waiting = list(rows)
            return [Scored(PRIOR, {"images": float(len(rows))}) for _ in rows]
        for row in rows:
            self._window.push(row)
        self._fitted = len(rows)
        self._fit()
        cosines, words = self.cosines(rows), None if self.words is None else self.words.cosines(rows)
        model = fit(rows, cosines, self.options, words)
        centred, own, _ = model.units.centred(rows, cosines)
        fits, votes = model.above_chance(model.units.fit(own)), model.votes(centred)
        count = neighbour_count(len(rows), self.options.nearest_images)
        return [
            Scored(odds, {"fit": fits[n], "known_neighbours": votes[n], "neighbours": count, "images": len(rows)})
            for n, odds in enumerate(logit(np.clip(model.known, 1e-9, 1 - 1e-9)).tolist())
        ]

    def _cosines_to_words(self, rows: Singles) -> Floats | None:
        """Largest cosine of each image of the window to a word; only images that are new in the window are compared."""
        if self.words is None:
            return None
        places = np.arange(max(self._compared, self._fitted - len(rows)), self._fitted) % self._capacity
        self._word_cosines[places] = self.words.cosines(rows[places])
        self._compared = self._fitted
        return self._word_cosines[: len(rows)]

    def value(self, look: Look[Any]) -> Scored:
        model, features = self._model, feature_row(look)
        row = features[None]
        cosines = self.cosines(row)
        word, word_cosine = (None, 0.0) if self.words is None else self.words.nearest(features)
        advantage = float(cosines.max()) - word_cosine
        most_like = word if advantage < 0 else None
        if model is None:
            return Scored(PRIOR, {"images": float(self.seen)}, most_like)
        centred, own, nearness = model.units.centred(row, cosines)
        fits, votes = model.units.fit(own), model.votes(centred)
        prior, text, neighbours, near = model.log_odds(fits, own.argmax(1), votes, nearness)
        total = float(prior[0] + text[0] + neighbours[0] + near[0])
        evidence = {
            "fit": float(model.above_chance(fits)[0]),
            "known_neighbours": float(votes[0]),
            "neighbours": float(neighbour_count(len(model.known), self.options.nearest_images)),
            "share_known": float(model.parameters.share[0, 0]),
            "from_text": float(text[0]),
            "from_neighbours": float(neighbours[0]),
            "from_distance": float(near[0]),
            "images": float(self.seen),
        }
        if model.words is not None:
            from_words = float(model.words.evidence(np.array([advantage]), fits)[0])
            evidence |= {"over_words": advantage, "from_words": from_words}
            total += from_words
        return Scored(total, evidence, most_like)

    def tensors(self) -> dict[str, torch.Tensor]:
        used = {} if self.words is None else {"count": torch.tensor(len(self.words.names))}
        return super().tensors() | named(words=used)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        rest = {name: tensor for name, tensor in tensors.items() if not name.startswith("words/")}
        (used,) = split({name: tensor for name, tensor in tensors.items() if name not in rest}, "words")
        count, present = stored_count(used, "count") if used else 0, 0 if self.words is None else len(self.words.names)
        if count != present:
            raise Error(
                f"The state was saved with {count:,} words, and {present:,} of them can be encoded now: give the "
                "embeddings again as `words={name: embedding}`.",
                code="words-missing",
            )
        super().load(rest)

    def explain(self, scored: Scored, label: str) -> str:
        """One sentence about the numbers behind a score."""
        evidence = scored.evidence
        most_like = "" if scored.most_like is None else f" Most like: {scored.most_like}."
        if "fit" not in evidence:
            return f"Too few images have been seen to compare this one with.{most_like}"
        fits, count = evidence["fit"], round(evidence["neighbours"])
        known = round(evidence["known_neighbours"] * count)
        side = "better" if fits >= 0 else "worse"
        nearest = "its nearest recent image was" if count == 1 else f"of its {count} nearest recent images were"
        return f"Fits {label} {side} than chance by {abs(fits):.1f} deviations; {known} {nearest} known.{most_like}"
