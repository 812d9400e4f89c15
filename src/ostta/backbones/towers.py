"""The two towers as plain modules, tensor in and tensor out, and the hash of their weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .blocks import last_block


class ImageTower(nn.Module):
    """Normalised images [B, 3, H, W] to raw features [B, D], through a vision model of `transformers`.

    The submodules keep the names they have there, so that stored overlays read like CLIP's own weights.
    """

    def __init__(self, vision_model: nn.Module, visual_projection: nn.Module | None = None) -> None:
        super().__init__()
        self.vision_model = vision_model
        self.visual_projection = nn.Identity() if visual_projection is None else visual_projection

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.visual_projection(self.vision_model(pixels).pooler_output)
        return features


class ClipTower(ImageTower):
    """The same for a CLIP, which is read at its class token: the last layer is worked out for that token alone."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        model: Any = self.vision_model
        hidden = model.pre_layrnorm(model.embeddings(pixels))
        for layer in model.encoder.layers[:-1]:
            hidden = layer(hidden, None)
        return self.read(hidden)

    def read(self, hidden: torch.Tensor) -> torch.Tensor:
        """Raw features from the input of the last layer."""
        model: Any = self.vision_model
        token = last_block(model.encoder.layers[-1], hidden, 0)
        features: torch.Tensor = self.visual_projection(model.post_layernorm(token))
        return features


class TextTower(nn.Module):
    """Token ids [B, L] to raw features [B, D], through a text model of `transformers`."""

    def __init__(self, text_model: nn.Module, text_projection: nn.Module | None = None) -> None:
        super().__init__()
        self.text_model = text_model
        self.text_projection = nn.Identity() if text_projection is None else text_projection

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        # No attention mask: CLIP is causal, so what stands behind the end does not matter, and SigLIP was trained unmasked.
        features: torch.Tensor = self.text_projection(self.text_model(tokens).pooler_output)
        return features


def frozen(module: nn.Module) -> nn.Module:
    """The module itself, in eval mode and without gradients."""
    return module.eval().requires_grad_(False)


def initial_weights(**modules: nn.Module) -> dict[str, torch.Tensor]:
    """References to the weights as they are now. An overlay swaps parameters, so looking later could find adapted ones."""
    return {
        f"{part}.{name}": tensor for part, module in modules.items() for name, tensor in module.state_dict().items()
    }


def weight_hash(weights: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, whatever file the weights came from."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():  # an empty one cannot be seen as bytes
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
