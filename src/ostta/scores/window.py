"""Base of scores that are fitted to a window of recent images at regular intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.banks import FeatureMemory, FeatureWindow, feature_row, named
from ..core.checks import require_intact, require_names, require_unit, split, stored, stored_count, stored_length
from ..core.types import Decision, Look, Scored
from .base import Score, Setting

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]


class WindowScore(Score):
    """Keep the features of recent images and refit at regular intervals.

    A fit depends only on the window, so a state file holds only the window.

    first:  number of images before the first fit.
    """

    first = 4

    def __init__(self, setting: Setting, capacity: int, every: int) -> None:
        self._classifier: Singles = setting.classifier.detach().float().cpu().numpy()
        self._capacity, self._every = capacity, every
        self.reset()

    def fit(self, rows: Singles, cosines: Floats) -> None:
        """Fit to the features [N, D] of the window, with their cosines [N, C] to the classes."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forget the last fit."""
        raise NotImplementedError

    def reset(self) -> None:
        self._window = FeatureWindow(self._capacity, self._classifier.shape[1])
        self._waiting: list[Singles] = []
        self._fitted = 0
        self.forget()

    @property
    def seen(self) -> int:
        """Number of images since the start."""
        return self._fitted + len(self._waiting)

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        self._waiting.append(feature_row(look))
        due = self.first if self._fitted == 0 else max(1, min(self._every, self._fitted // 4))
        if len(self._waiting) >= due:
            for row in self._waiting:
                self._window.push(row)
            self._fitted += len(self._waiting)
            self._waiting = []
            self._fit()

    def memories(self) -> dict[str, FeatureMemory]:
        return {"recent": self._window}

    def tensors(self) -> dict[str, torch.Tensor]:
        width = self._classifier.shape[1]
        waiting = np.stack(self._waiting) if self._waiting else np.zeros((0, width), np.float32)
        images = {"waiting": torch.from_numpy(waiting), "seen": torch.tensor(self._fitted)}
        return named(window=self._window.tensors(), images=images)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        window, images = split(tensors, "window", "images")
        require_names(images, ("waiting", "seen"))
        width, fitted = self._classifier.shape[1], stored_count(images, "seen")
        count = stored_length(images, "waiting", max(self.first, self._every))
        waiting = stored(images, "waiting", torch.float32, (count, width))
        require_unit(waiting, "list of new images")
        fresh = FeatureWindow(self._capacity, width)
        fresh.load(window)
        complete = len(fresh) == min(fitted, self._capacity)
        require_intact(complete, "window of features", "it does not hold as many images as were seen")
        self._window, self._fitted = fresh, fitted
        self._waiting = [row.copy() for row in waiting.numpy()]
        self.forget()
        if fitted:
            self._fit()

    def cosines(self, rows: Singles) -> Floats:
        """Return the cosines [N, C] of features [N, D] to the classes."""
        result: Floats = (rows @ self._classifier.T).astype(np.float64)
        return result

    def _fit(self) -> None:
        rows = self._window.rows
        self.fit(rows, self.cosines(rows))
