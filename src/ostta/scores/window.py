"""A score that is fitted to a window of recent images from time to time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.banks import FeatureMemory, FeatureWindow, feature_row, named
from ..core.checks import require_names, require_unit, split, stored, stored_count
from ..core.types import Decision, Error, Look, Scored
from .base import Score, Setting

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]


class WindowScore(Score):
    """Keep the features of recent images and refit after every few of them.

    A fit is a function of the window alone, so that a state file holds the window and nothing else.

    first:  images before the first fit.
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
        """Images since the start."""
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
        few = min(len(images["waiting"]) if images["waiting"].ndim else 0, max(self.first, self._every))
        waiting = stored(images, "waiting", torch.float32, (few, width))
        require_unit(waiting, torch.ones(few, dtype=torch.bool), "list of images that wait")
        fresh = FeatureWindow(self._capacity, width)
        fresh.load(window)
        if len(fresh) != min(fitted, self._capacity):
            raise Error("The stored window of features is damaged: it does not hold as many images as were seen.")
        self._window, self._fitted = fresh, fitted
        self._waiting = [row.copy() for row in waiting.numpy()]
        self.forget()
        if fitted:
            self._fit()

    def cosines(self, rows: Singles) -> Floats:
        """Cosines [N, C] of features [N, D] to the classes."""
        found: Floats = (rows @ self._classifier.T).astype(np.float64)
        return found

    def _fit(self) -> None:
        rows = self._window.rows
        self.fit(rows, self.cosines(rows))
