"""The score `field`: log-odds that an image is known, under a model fitted to the recent images."""

from __future__ import annotations

import math
from typing import Any

from ..core.types import Look, Scored
from ..scores.protocol import Setting
from ..scores.window import Floats, Singles, WindowScore, row_of
from .model import StreamModel, fit, neighbour_count
from .options import FieldOptions

# Log-odds before the first fit: three of four images are known.
PRIOR = math.log(3)


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

    @property
    def warming_up(self) -> bool:
        return self.seen < self.options.undecided_images

    def forget(self) -> None:
        self._model: StreamModel | None = None

    def fit(self, rows: Singles, cosines: Floats) -> None:
        self._model = fit(rows, cosines, self.options)

    def value(self, look: Look[Any]) -> Scored:
        model = self._model
        if model is None:
            return Scored(PRIOR, {"images": float(self.seen)})
        row = row_of(look)[None]
        centred, own = model.units.centred(row, self.cosines(row))
        fits, votes = model.units.fit(own), model.votes(centred)
        prior, text, neighbours = model.log_odds(fits, own.argmax(1), votes)
        evidence = {
            "fit": float(fits[0]),
            "known_neighbours": float(votes[0]),
            "neighbours": float(neighbour_count(len(model.known), self.options.nearest_images)),
            "share_known": model.share,
            "from_text": float(text[0]),
            "from_neighbours": float(neighbours[0]),
            "images": float(self.seen),
        }
        return Scored(float(prior[0] + text[0] + neighbours[0]), evidence)

    def explain(self, scored: Scored, label: str) -> str:
        """One sentence about the numbers behind a score."""
        evidence = scored.evidence
        if "fit" not in evidence:
            return "Too few images have been seen to compare this one with."
        fits, count = evidence["fit"], round(evidence["neighbours"])
        known = round(evidence["known_neighbours"] * count)
        side = "better" if fits >= 0 else "worse"
        nearest = "its nearest recent image was" if count == 1 else f"of its {count} nearest recent images were"
        return f"Fits {label} {side} than chance by {abs(fits):.1f} deviations; {known} {nearest} known."
