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

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.banks import FeatureMemory, FeatureWindow, named
from ..core.checks import require_names, require_unit, split, stored, stored_count
from ..core.options import Options, option
from ..core.types import Decision, Error, Look, Scored
from .protocol import Setting
from .recent_images import Floats, RecentImages, Singles

# Images before the first look at the window.
FIRST = 4


@dataclass(frozen=True)
class NeighboursOptions(Options):
    """Chosen on streams of training images that the embedded model was not trained on; docs/deciding.md has the tables."""

    recent_images: int = option(512, bounds=(32, 65_536), about="how many recent images are remembered")
    nearest: int = option(5, bounds=(1, 100), about="how many of the nearest known and unknown images count")
    look_every: int = option(
        32, bounds=(1, 65_536), about="the window is looked at anew after so many images; sooner while it is young"
    )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors whose size these options decide, by name; smaller ones while few images have been seen."""
        return {"window/rows": (self.recent_images, width)}


class Neighbours:
    """A window of features, what the last look at it has found, and the images since then.

    >>> prediction = ostta.load("embedded", ["cat", "dog"], score="neighbours").step(image)
    >>> prediction.evidence["margin"], prediction.score  # the first images are accepted
    (1.0, 0.0)
    """

    Options = NeighboursOptions
    about = "the best class, and likeness to recent known images less likeness to recent unknown ones: ours"
    scale: float | None = None

    def __init__(self, options: NeighboursOptions, setting: Setting) -> None:
        if options.nearest * 4 > options.recent_images:
            raise Error(
                f"`recent_images` is at least four times `nearest`, not {options.recent_images} with {options.nearest}."
            )
        self.options = options
        self._classifier: Singles = setting.classifier.detach().float().cpu().numpy()
        self.reset()

    def reset(self) -> None:
        self._window = FeatureWindow(self.options.recent_images, self._classifier.shape[1])
        self._waiting: list[Singles] = []
        self._seen = 0
        self._found: RecentImages | None = None

    def value(self, look: Look[Any]) -> Scored:
        if self._found is None:
            return Scored(0.0, {"contrast": 1.0, "margin": 1.0})
        row = _row(look)[None]
        judged = self._found.judge(row, self._cosines(row))
        evidence = {"class": float(judged.fit[0])}
        if judged.known is not None and judged.unknown is not None:
            evidence |= {"known": float(judged.known[0]), "unknown": float(judged.unknown[0])}
        evidence |= {"contrast": float(judged.contrast[0]), "margin": self._found.margin}
        evidence["groups"] = float(self._found.groups)
        return Scored(float(judged.score[0]), evidence)

    def take(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        self._waiting.append(_row(look))
        due = FIRST if self._seen == 0 else max(1, min(self.options.look_every, self._seen // 4))
        if len(self._waiting) >= due:
            for row in self._waiting:
                self._window.push(row)
            self._seen += len(self._waiting)
            self._waiting = []
            self._look()

    def memories(self) -> dict[str, FeatureMemory]:
        return {"recent": self._window}

    def tensors(self) -> dict[str, torch.Tensor]:
        width = self._classifier.shape[1]
        waiting = np.stack(self._waiting) if self._waiting else np.zeros((0, width), np.float32)
        images = {"waiting": torch.from_numpy(waiting), "seen": torch.tensor(self._seen)}
        return named(window=self._window.tensors(), images=images)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        window, images = split(tensors, "window", "images")
        require_names(images, ("waiting", "seen"))
        width, seen = self._classifier.shape[1], stored_count(images, "seen")
        few = min(len(images["waiting"]) if images["waiting"].ndim else 0, max(FIRST, self.options.look_every))
        waiting = stored(images, "waiting", torch.float32, (few, width))
        require_unit(waiting, torch.ones(few, dtype=torch.bool), "list of images that wait")
        fresh = FeatureWindow(self.options.recent_images, width)
        fresh.load(window)
        if len(fresh) != min(seen, self.options.recent_images):
            raise Error("The stored window of features is damaged: it does not hold as many images as were seen.")
        self._window, self._seen, self._found = fresh, seen, None
        self._waiting = [row.copy() for row in waiting.numpy()]
        if seen:
            self._look()

    def _look(self) -> None:
        rows = self._window.rows
        self._found = RecentImages.of(rows, self._cosines(rows), self.options.nearest)

    def _cosines(self, rows: Singles) -> Floats:
        cosines: Floats = (rows @ self._classifier.T).astype(np.float64)
        return cosines


def _row(look: Look[Any]) -> NDArray[np.float32]:
    row: NDArray[np.float32] = look.features.detach().float().cpu().numpy()
    return row
