"""The score `neighbours`: fit to the best class, and similarity to recent known and unknown images.

The score stores only the features of the last images, regardless of their verdicts, so an error has no effect after the
image leaves the window. At regular intervals it analyses the window (`recent_images`) and finds the clearly known
images and those with the lowest scores. A new image is scored by its best class and by how much more similar it is to
the known images. There is no gradient and no second pass, and no constant depends on the scale of the cosines.

The identifier `adaptive` uses the entries `contrast`, `margin` and `groups` of its evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config.declare import Options, option
from ..core.banks import feature_row
from ..core.types import Error, Look, Scored
from ..scores.base import Setting
from ..scores.window import Floats, Singles, WindowScore
from .recent_images import RecentImages


@dataclass(frozen=True)
class NeighboursOptions(Options):
    """Options of `neighbours`, chosen on streams of training images that the embedded model was not trained on.

    The measurements are in docs/experiments/former-rule.md.
    """

    recent_images: int = option(512, bounds=(32, 65_536), about="number of recent images that are stored")
    nearest: int = option(
        5, bounds=(1, 100), about="number of nearest known and of nearest unknown images that are used"
    )
    look_every: int = option(
        32,
        bounds=(1, 65_536),
        about="number of images between two analyses of the window; fewer while the window is filling",
    )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name.

        The tensors are smaller until enough images have been seen.
        """
        return {"window/rows": (self.recent_images, width)}


class Neighbours(WindowScore):
    """A window of features, the result of its last analysis, and the number of images since then.

    >>> prediction = ostta.load("embedded", ["cat", "dog"], score="neighbours").step(image)
    >>> prediction.evidence["margin"], prediction.score  # the first images are accepted
    (1.0, 0.0)
    """

    Options = NeighboursOptions
    about = "fit to the best class, and similarity to recent known minus recent unknown images: the former default"
    scale: float | None = None

    def __init__(self, options: NeighboursOptions, setting: Setting) -> None:
        if options.nearest * 4 > options.recent_images:
            raise Error(
                f"`recent_images` ({options.recent_images}) must be at least four times `nearest` ({options.nearest}).",
                code="option-conflict",
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
