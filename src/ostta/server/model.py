"""A trial of the model before the server is ready."""

from __future__ import annotations

import torch

from ..backbones.protocol import Backbone
from ..core.overlay import encode
from ..core.types import Error


def device_of(backbone: Backbone) -> torch.device:
    """Return the device of the image tower."""
    return next((parameter.device for parameter in backbone.vision.parameters()), torch.device("cpu"))


def try_model(backbone: Backbone) -> None:
    """Encode a grey image, and raise an Error if the features are not finite."""
    size = backbone.preprocessing.image_size
    with torch.no_grad():
        features = encode(backbone.vision, torch.zeros(1, 3, size, size, device=device_of(backbone)), None)
    if not bool(torch.isfinite(features).all()):
        raise Error(
            f"The backbone {backbone.id} returns features that are not finite for a grey image: check its weights and precision.",
            code="model-invalid",
        )
