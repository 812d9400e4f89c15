"""The weight of a cache beside the logits of the text, on backbones of any temperature (TDA, DPE).

Both methods add a cache's sum, times a published weight, to the logits s z. The weights were chosen with CLIP's s = 100. Where s is
another, the same weight means another share in the answer: with the embedded model's s = 12.6 the cache counts eight times as much
beside the text as it was meant to. With s / 100 of the published weight both parts keep their proportion and only the temperature
of the whole changes: the answer is the one that s = 100 would give, but for what enters a cache, as entropies are those of the
backbone's own softmax. Sharpness is about cosines between images and has nothing to do with s.
"""

from __future__ import annotations

from typing import Literal

from ..config.declare import option

# The temperature that the published weights belong to.
PUBLISHED_SCALE = 100.0
CacheWeights = Literal["published", "scaled"]


def cache_weights_option() -> CacheWeights:
    """The option of a method with a cache."""
    return option(
        "published",
        about="weights of the caches as they are, or times the backbone's logit scale over 100, the one they were chosen with",
    )


def cache_factor(weights: CacheWeights, logit_scale: float) -> float:
    """What the published weights are multiplied by."""
    return logit_scale / PUBLISHED_SCALE if weights == "scaled" else 1.0
