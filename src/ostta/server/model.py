"""Whether the model of a server answers, and where it is."""

from __future__ import annotations

import torch

from ..backbones.protocol import Backbone
from ..core.overlay import encode
from ..core.types import Error


def device_of(backbone: Backbone) -> torch.device:
    """Where its image tower is."""
    return next((parameter.device for parameter in backbone.vision.parameters()), torch.device("cpu"))


def try_model(backbone: Backbone) -> None:
    """Have it look at a grey image; an Error where nothing can be seen in its answer."""
    size = backbone.preprocessing.image_size
    with torch.no_grad():
        features = encode(backbone.vision, torch.zeros(1, 3, size, size, device=device_of(backbone)), None)
    if not bool(torch.isfinite(features).all()):
        raise Error(f"The backbone {backbone.id} gives features that are not finite for a grey image.")
