"""OODD's score: likeness to the images that looked least like a class so far (Yang et al. 2025), one image at a time.

    b = max softmax(z)            the base score, at temperature 1 and not at the backbone's own, as published
    q = the 5th largest cosine of the image's feature to those in the dictionary
    value = b - q

The dictionary has the features of the 2,048 images with the lowest base scores of the stream. While there is room every image enters,
known or not; then an image takes the place of the highest base score in it, if its own is lower. The published code adds a whole batch
before it scores any image of it. Here an image is scored first and enters after its step, so it is never its own neighbour, and
while there are fewer than five in the dictionary the value is b alone.

Units matter. With the published base, b moves by some thousandths and q by some tenths: b decides who enters, and the ranking of images is
that of -q alone. `base="max"`, the best cosine, is in the units of q, so that both count; `base="msp"` is the softmax at the
backbone's own temperature. Nothing in the dictionary grows old: after a change of domain the lowest scores of the old one stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ..config.declare import Options, option
from ..core.banks import FeatureMemory, LowestFeatures, feature_row
from ..core.scores import max_score, max_softmax_score
from ..core.types import Decision, Error, Look, Scored
from .base import Score, Setting


@dataclass(frozen=True)
class DictionaryOptions(Options):
    """Defaults are those of the published code for CLIP."""

    base: Literal["softmax", "max", "msp"] = option(
        "softmax",
        about="what decides who enters: the softmax at temperature 1 as published, the best cosine, or the softmax at the "
        "backbone's temperature",
    )
    capacity: int = option(2_048, bounds=(1, 65_536), about="how many features the dictionary has")
    kth: int = option(
        5,
        bounds=(1, 1_000),
        about="the similarity to the dictionary is the cosine similarity to the k-th nearest entry",
    )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors whose size these options decide, by name; smaller ones while few images have been seen."""
        return {"rows": (self.capacity, width)}


class Dictionary(Score):
    """The features of the images with the lowest base scores so far.

    >>> prediction = ostta.load("embedded", ["cat", "dog"], "zero_shot", score="dictionary").step(image)
    >>> prediction.score == prediction.evidence["class"]  # nothing is in the dictionary yet
    True
    """

    Options = DictionaryOptions
    about = "OODD's: the best class, less the likeness to the images that looked least like one so far"
    scale: float | None = None

    def __init__(self, options: DictionaryOptions, setting: Setting) -> None:
        if options.kth > options.capacity:
            raise Error(
                f"`capacity` is at least `kth`, not {options.capacity} with {options.kth}.", code="option-invalid"
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
