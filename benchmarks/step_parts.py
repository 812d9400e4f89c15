"""Cost of the parts of a step: the identifier and the overlay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

import ostta
from ostta.core.overlay import Overlay, encode
from ostta.identifiers import LDA, LDAOptions
from ostta.methods.groups import layernorm_names

from .timing import alternate


def identifiers() -> dict[str, float]:
    """Milliseconds of one score with a full bank."""
    rng = np.random.default_rng(0)
    scores = [float(s) for s in np.concatenate([rng.normal(0.2, 0.02, 600), rng.normal(0.3, 0.02, 600)])]
    rng.shuffle(scores)
    sides: dict[str, Callable[[], object]] = {}
    for search in ("grid", "exact"):
        for objective in ("weighted", "unweighted"):
            identifier = LDA(LDAOptions(search=search, objective=objective))  # type: ignore[arg-type]
            for score in scores:
                identifier.remember(score)
            stream = iter(scores * 1000)
            sides[f"LDA {search} {objective}, 512 scores"] = _observing(identifier, stream)
    return alternate(sides, 15, 200)


def _observing(identifier: LDA, scores: Iterator[float]) -> Callable[[], object]:
    return lambda: identifier.observe(next(scores))


def overlays(backbone: ostta.backbones.Backbone) -> dict[str, float]:
    """Milliseconds of one forward, plain and with swapped parameters."""
    overlay = Overlay(backbone.vision, layernorm_names(backbone.vision))
    pixels = torch.zeros(1, 3, backbone.preprocessing.image_size, backbone.preprocessing.image_size)
    with torch.no_grad():
        return alternate(
            {
                "tower alone": lambda: backbone.vision(pixels),
                "tower through the overlay": lambda: encode(backbone.vision, pixels, overlay),
                "tower through functional_call": lambda: torch.func.functional_call(
                    backbone.vision, overlay.tensors, (pixels,)
                ),
            },
            15,
            5,
        )
