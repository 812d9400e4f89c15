"""Weights of a feature cache relative to the text logits, for any logit scale (TDA, DPE).

Both methods add a weighted sum over the cache to the logits s z. The published weights were chosen for CLIP's s = 100.
With another s the same weight changes the share of the cache: with s = 12.6, that of the embedded model, the cache
counts eight times as much as intended. Multiplying the weights by s / 100 keeps the published proportion, so that only
the temperature of the result changes. Predictions are then those of s = 100, except that the selection of cached images
depends on entropies of the backbone's own softmax. The sharpness applies to cosines between images and does not depend
on s.
"""

from __future__ import annotations

from typing import Literal

import torch

from ..config.declare import option
from ..core.checks import require_intact, require_kind, require_names, require_room, require_unit, stored

# The logit scale for which the published weights were chosen.
PUBLISHED_SCALE = 100.0
CacheWeights = Literal["published", "scaled"]
ScoreOf = Literal["logits", "cosine"]
NO_PLACE = "the cache has only images of this class that are more certain"


def cache_weights_option() -> CacheWeights:
    """Declare the option that selects the cache weights."""
    return option(
        "published",
        about="weights of the caches: as published for a logit scale of 100, or scaled to the logit "
        "scale of the backbone",
    )


def score_of_option() -> ScoreOf:
    """Declare the option that selects the values whose maximum is the score."""
    return option(
        "logits",
        paper="cosine",
        number="D29",
        about="values whose maximum is the score: the final logits, or the cosines of the frozen classifier",
    )


def cache_factor(weights: CacheWeights, logit_scale: float) -> float:
    """Return the factor for the published weights."""
    return logit_scale / PUBLISHED_SCALE if weights == "scaled" else 1.0


class ClassCache:
    """At most `depth` features per class, those with the lowest entropy (TDA, DPE, OGA).

    `place` returns the position of a candidate without storing it, so that a look can include the candidate without
    changing the cache.
    """

    def __init__(self, classes: int, depth: int, width: int, device: torch.device | None = None) -> None:
        require_room("A cache", (classes, depth, width))
        self.features = torch.zeros(classes, depth, width, device=device)
        # Infinite entropy marks an empty position, so that any candidate replaces it.
        self.entropies = torch.full((classes, depth), torch.inf, device=device)

    def __len__(self) -> int:
        return int(self.filled.sum())

    @property
    def filled(self) -> torch.Tensor:
        """Mask of the positions that hold a feature, [classes, depth]."""
        return self.entropies < torch.inf

    @property
    def bytes(self) -> int:
        return self.features.numel() * self.features.element_size()

    def place(self, label: int, entropy: float) -> int | None:
        """Return the position of a candidate, or None if it does not enter the cache.

        This is the first empty position, or that of the highest entropy if the candidate has a lower one.
        """
        worst, place = self.entropies[label].max(dim=0)
        return int(place) if entropy < float(worst) else None

    def put(self, label: int, place: int, features: torch.Tensor, entropy: float) -> None:
        self.features[label, place] = features.detach()
        self.entropies[label, place] = entropy

    def similarities(self, features: torch.Tensor, label: int, place: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cosines to all positions and the mask of used ones, with the candidate at (label, place)."""
        similar, filled = self.features @ features, self.filled
        if place is not None:
            similar[label, place] = features @ features
            filled[label, place] = True
        return similar, filled

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"features": self.features.clone(), "entropies": self.entropies.clone()}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Raise an Error and change nothing if the content does not fit this cache."""
        require_names(tensors, ("features", "entropies"))
        features = stored(tensors, "features", torch.float32, self.features.shape)
        entropies = require_kind(tensors, "entropies", torch.float32, self.entropies.shape)
        # Rounding may make an entropy slightly negative. The comparison is false for NaN.
        require_intact((entropies > -1e-3).all(), "cache", "an entropy is negative or not a number")
        require_unit(features, "cache", entropies < torch.inf)
        self.features.copy_(features)
        self.entropies.copy_(entropies)
