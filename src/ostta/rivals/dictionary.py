"""OODD's score: dissimilarity to the images of the stream that fit no class (Yang et al. 2025), one image at a time.

    b = max softmax(z)            the base score, at temperature 1 instead of that of the backbone, as published
    q = the 5th largest cosine of the feature of the image to those in the dictionary
    value = b - q

The dictionary has the features of the 2,048 images of the stream with the lowest base scores. Until it is full, every
image enters, known or not; then an image replaces the entry with the highest base score if its own is lower. The
published code adds a whole batch before it scores the images of the batch. Here an image is scored first and enters
after its step, so it is never its own neighbour. With fewer than five entries the value is b.

The units of the two terms differ. With the published base, b varies by thousandths and q by tenths: b decides which
images enter, and the ranking of images is that of -q. `base="max"`, the best cosine, has the units of q, so that both
terms count; `base="msp"` is the softmax at the temperature of the backbone. Entries do not expire: after a change of
domain the lowest scores of the previous domain remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..config.declare import Options, option
from ..core.banks import LARGEST_SCORE, FeatureMemory, feature_row
from ..core.checks import require_names, require_room, require_unit, stored, stored_length
from ..core.losses import max_score, max_softmax_score
from ..core.types import Decision, Error, Look, Scored
from ..scores import Score, Setting


@dataclass(frozen=True)
class DictionaryOptions(Options):
    """Options of `dictionary`. Defaults are those of the published code for CLIP."""

    base: Literal["softmax", "max", "msp"] = option(
        "softmax",
        about="base score that selects the entries: the maximum softmax at temperature 1 as published, "
        "the best cosine, or the maximum softmax at the temperature of the backbone",
    )
    capacity: int = option(2_048, bounds=(1, 65_536), about="largest number of features in the dictionary")
    kth: int = option(
        5,
        bounds=(1, 1_000),
        about="rank k of the entry whose cosine similarity to the image is the similarity to the dictionary",
    )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name.

        The tensors are smaller until enough images have been seen.
        """
        return {"rows": (self.capacity, width)}


class LowestFeatures:
    """Unit features of the images with the lowest scores so far, at most `capacity`, in main memory."""

    def __init__(self, capacity: int, width: int) -> None:
        require_room("A dictionary of features", (capacity, width))
        self._rows: NDArray[np.float32] = np.zeros((capacity, width), np.float32)
        self._scores: NDArray[np.float64] = np.zeros(capacity)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return self._rows.nbytes

    @property
    def rows(self) -> NDArray[np.float32]:
        """View of the stored rows."""
        return self._rows[: self._count]

    @property
    def features(self) -> torch.Tensor:
        return torch.from_numpy(self.rows.copy())

    def push(self, features: NDArray[np.float32], score: float) -> None:
        """Store an image.

        If the memory is full, the image replaces the entry with the highest score, unless its own score is higher.
        """
        place = self._count
        if place == len(self._rows):
            place = int(self._scores.argmax())
            if score >= self._scores[place]:
                return
        self._rows[place], self._scores[place] = features, score
        self._count = max(self._count, place + 1)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"rows": self.features, "scores": torch.from_numpy(self._scores[: self._count].copy())}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Raise an Error and change nothing if the content does not fit this memory."""
        require_names(tensors, ("rows", "scores"))
        count = stored_length(tensors, "scores", len(self._rows))
        rows = stored(tensors, "rows", torch.float32, (count, self._rows.shape[1]))
        scores = stored(tensors, "scores", torch.float64, (count,), -LARGEST_SCORE, LARGEST_SCORE)
        require_unit(rows, "dictionary of features")
        self._rows[:count], self._rows[count:] = rows.numpy(), 0
        self._scores[:count], self._scores[count:] = scores.numpy(), 0
        self._count = count


class Dictionary(Score):
    """The features of the images with the lowest base scores so far.

    >>> prediction = ostta.load("embedded", ["cat", "dog"], "zero_shot", score="dictionary").step(image)
    >>> prediction.score == prediction.evidence["class"]  # nothing is in the dictionary yet
    True
    """

    Options = DictionaryOptions
    about = "OODD: base score minus the similarity to the images of the stream with the lowest base scores"
    scale: float | None = None

    def __init__(self, options: DictionaryOptions, setting: Setting) -> None:
        if options.kth > options.capacity:
            raise Error(
                f"`capacity` ({options.capacity}) must be at least `kth` ({options.kth}).", code="option-invalid"
            )
        self.options = options
        self._temperature = setting.logit_scale if options.base == "msp" else 1.0
        self._width = setting.classifier.shape[1]
        self.reset()

    def reset(self) -> None:
        self._lowest = LowestFeatures(self.options.capacity, self._width)

    def value(self, look: Look[Any]) -> Scored:
        base = self._base(look)
        if len(self._lowest) < self.options.kth:
            return Scored(base, {"class": base})
        cosines = self._lowest.rows @ feature_row(look)
        likeness = float(np.partition(cosines, -self.options.kth)[-self.options.kth])
        return Scored(base - likeness, {"class": base, "unknown": likeness})

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        self._lowest.push(feature_row(look), scored.evidence["class"])

    def memories(self) -> dict[str, FeatureMemory]:
        return {"undesired": self._lowest}

    def tensors(self) -> dict[str, torch.Tensor]:
        return self._lowest.tensors()

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self._lowest.load(tensors)

    def _base(self, look: Look[Any]) -> float:
        if self.options.base == "max":
            return max_score(look.cosines)
        return max_softmax_score(look.cosines, self._temperature)
