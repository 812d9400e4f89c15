"""The score `neighbours`: how well an image fits its best class, and whether it lies nearer to known or to unknown images.

It keeps the features of the last images, whatever they showed, and nothing else: what went wrong is gone a window later. Every so many
images it looks at them all (`recent_images`) and finds which are surely known and which are lowest. A new image is scored by its
best class and by how much more it is like the known ones. No gradient, no second pass, and no number depends on the scale of
the cosines.

Its evidence, beside the numbers for people, is what the identifier `adaptive` decides by: `contrast`, `margin` and `groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config.declare import Options, option
from ..core.banks import feature_row
from ..core.types import Error, Look, Scored
from ..scores.base import Setting
from ..scores.window import WindowScore
from .recent_images import Floats, RecentImages, Singles


@dataclass(frozen=True)
class NeighboursOptions(Options):
    """Chosen on streams of training images that the embedded model was not trained on; docs/experiments/former-rule.md has the tables."""

    recent_images: int = option(512, bounds=(32, 65_536), about="how many recent images are remembered")
    nearest: int = option(5, bounds=(1, 100), about="how many of the nearest known and unknown images count")
    look_every: int = option(
        32, bounds=(1, 65_536), about="the window is looked at anew after so many images; sooner while it is young"
    )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors whose size these options decide, by name; smaller ones while few images have been seen."""
        return {"window/rows": (self.recent_images, width)}


class Neighbours(WindowScore):
    """A window of features, what the last look at it has found, and the images since then.

    >>> prediction = ostta.load("embedded", ["cat", "dog"], score="neighbours").step(image)
    >>> prediction.evidence["margin"], prediction.score  # the first images are accepted
    (1.0, 0.0)
    """

    Options = NeighboursOptions
    about = "the best class, and likeness to recent known images less likeness to recent unknown ones: the former rule"
    scale: float | None = None

    def __init__(self, options: NeighboursOptions, setting: Setting) -> None:
        if options.nearest * 4 > options.recent_images:
            raise Error(
                f"`recent_images` is at least four times `nearest`, not {options.recent_images} with {options.nearest}."
            )
        self.options = options
        super().__init__(setting, options.recent_images, options.look_every)

    def forget(self) -> None:
        self._found: RecentImages | None = None

    def fit(self, rows: Singles, cosines: Floats) -> None:
        self._found = RecentImages.of(rows, cosines, self.options.nearest)

    def value(self, look: Look[Any]) -> Scored:
        if self._found is None:
            return Scored(0.0, {"contrast": 1.0, "margin": 1.0})
        row = feature_row(look)[None]
        judged = self._found.judge(row, self.cosines(row))
        evidence = {"class": float(judged.fit[0])}
        if judged.known is not None and judged.unknown is not None:
            evidence |= {"known": float(judged.known[0]), "unknown": float(judged.unknown[0])}
        evidence |= {"contrast": float(judged.contrast[0]), "margin": self._found.margin}
        evidence["groups"] = float(self._found.groups)
        return Scored(float(judged.score[0]), evidence)
