"""Levels of the classes: the mean logit that a domain shift adds to each class, independent of the image content.

    r_k      mean of the logits over recent images that clearly belong to class k (one row per class)
    level    mean of the rows over k, in which the row of a class has half the weight in its own level; mean 0
    answer   argmax_c z_c - g level_c,   g from 0 to 1 by the evenness of the predicted classes

Under noise, for example, the logits of "frog" are higher on all images, and too many images are classified as frogs.
Each class has one row, so that the frequency of a class does not affect its level. If the predictions remain uneven
without the levels, the classes themselves are imbalanced, and less is subtracted. The scale and the offset of the
logits have no effect.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from .checks import require_names, stored, stored_count

Floats = NDArray[np.float64]

PULL = 3.0  # number of images of a class at which its row has half of its weight, because few images are unreliable
MEMORY = 100  # length of the moving average of a row, so that a new domain replaces the previous one
OWN = 0.5  # weight of the own row of a class in its level: 1 penalises frequent classes, 0 is poor with few classes
EVEN = (0.6, 0.8)  # evenness of the predictions at which subtraction begins, and at which the whole level is subtracted
WINDOW = 256  # images over which evenness and margins are measured
LARGEST = 1e30


class Levels:
    """The rows of logits, the frequency of each predicted class, and the usual margin between the two best classes.

    Only classes that were seen have a row, because a table for C classes would add C x C numbers to every state and
    snapshot.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.reset()

    def reset(self) -> None:
        classes = self._classes
        # One row for each class with a count above 0, in the order of `_seen`.
        self._rows: Floats = np.zeros((0, classes))
        self._seen: NDArray[np.intp] = np.zeros(0, np.intp)
        self._count: Floats = np.zeros(classes)
        self._share: Floats = np.full(classes, 1 / classes)
        self._margin = 0.0
        self._sure = self._steps = 0
        self._level: Floats | None = None

    def level(self) -> Floats:
        if self._level is None:
            count = self._count[self._seen]
            trust = count / (count + PULL)
            summed = trust @ self._rows
            summed[self._seen] -= (1 - OWN) * trust * self._rows[np.arange(len(trust)), self._seen]
            level = summed / (self._classes - 1 + OWN)
            self._level = level - level.mean()
        return self._level

    def strength(self) -> float:
        """Return the share of the levels that is subtracted, from exp(entropy of predictions) / number of classes."""
        entropy = -float((self._share * np.log(self._share + 1e-12)).sum())
        return min(max((math.exp(entropy) / self._classes - EVEN[0]) / (EVEN[1] - EVEN[0]), 0.0), 1.0)

    def without(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits minus the levels. Changes nothing."""
        level = torch.from_numpy(self.strength() * self.level())
        return logits.detach() - level.to(logits.device, logits.dtype)

    def remember(self, logits: torch.Tensor, known: bool) -> None:
        """Update the rows and statistics with one image."""
        if self._classes < 2:
            return
        z = logits.detach().double().cpu().numpy()
        z = z - z.mean()
        # With the full correction: a partial one would let a raised class keep the correction small.
        corrected = z - self.level()
        second, first = np.partition(corrected, -2)[-2:]
        is_clear = first - second > self._margin
        self._steps += 1
        self._margin += float(first - second - self._margin) / min(self._steps, WINDOW)
        if not is_clear:
            return
        answer = int(corrected.argmax())
        self._sure = min(self._sure + 1, WINDOW)
        rate = 1 / (self._sure + self._classes)
        self._share *= 1 - rate
        self._share[answer] += rate
        if known:
            row = int(np.searchsorted(self._seen, answer))
            if not self._count[answer]:
                self._seen = np.insert(self._seen, row, answer)
                self._rows = np.insert(self._rows, row, 0.0, axis=0)
            self._count[answer] = min(self._count[answer] + 1, MEMORY)
            self._rows[row] += (z - self._rows[row]) / self._count[answer]
            self._level = None

    def tensors(self) -> dict[str, torch.Tensor]:
        numbers = {"rows": self._rows, "count": self._count, "share": self._share, "margin": np.array(self._margin)}
        return {
            **{name: torch.from_numpy(values.copy()) for name, values in numbers.items()},
            "sure": torch.tensor(self._sure),
            "steps": torch.tensor(self._steps),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Raise an Error and change nothing if the content does not fit."""
        classes, kind = self._classes, torch.float64
        require_names(tensors, ("rows", "count", "share", "margin", "sure", "steps"))
        count = stored(tensors, "count", kind, (classes,), 0, MEMORY).numpy().copy()
        seen = np.flatnonzero(count)
        rows = stored(tensors, "rows", kind, (len(seen), classes), -LARGEST, LARGEST).numpy().copy()
        share = stored(tensors, "share", kind, (classes,), 0, 1 + 1e-6).numpy().copy()
        margin = float(stored(tensors, "margin", kind, (), 0, LARGEST))
        sure, steps = stored_count(tensors, "sure", WINDOW), stored_count(tensors, "steps")
        self._rows, self._seen, self._count, self._share, self._margin = rows, seen, count, share, margin
        self._sure, self._steps, self._level = sure, steps, None
