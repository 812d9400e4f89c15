"""Image and text towers as modules from tensor to tensor, their transformer layers, and the weight hash.

CLIP reads its features at one position. In the last layer, the other positions are used only as keys and values, so
`last_block` does not compute their queries and dense layers, which are five sixths of the work of the layer.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from ..core.devices import DTYPES
from ..core.errors import translate_errors
from ..core.overlay import learning
from ..core.types import Error

# Keys and values of one layer, [B, heads, L, width of a head].
KeysValues = tuple[torch.Tensor, torch.Tensor]


# --- towers -----------------------------------------------------------------------------------------------------------
class ImageTower(nn.Module):
    """Vision model of `transformers`, from normalised images [B, 3, H, W] to raw features [B, D].

    The submodules keep their names, so stored overlays use the parameter names of CLIP.
    """

    def __init__(self, vision_model: nn.Module, visual_projection: nn.Module | None = None) -> None:
        super().__init__()
        self.vision_model = vision_model
        self.visual_projection = nn.Identity() if visual_projection is None else visual_projection

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.visual_projection(self.vision_model(pixels).pooler_output)
        return features


class ClipTower(ImageTower):
    """Image tower of CLIP that computes the last layer only for the class token."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        model: Any = self.vision_model
        hidden = model.pre_layrnorm(model.embeddings(pixels))
        for layer in model.encoder.layers[:-1]:
            hidden = layer(hidden, None)
        return self.read(hidden)

    def read(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute raw features from the input of the last layer."""
        model: Any = self.vision_model
        token = last_block(model.encoder.layers[-1], hidden, 0)
        features: torch.Tensor = self.visual_projection(model.post_layernorm(token))
        return features


class TextTower(nn.Module):
    """Text model of `transformers`, from token ids [B, L] to raw features [B, D]."""

    def __init__(self, text_model: nn.Module, text_projection: nn.Module | None = None) -> None:
        super().__init__()
        self.text_model = text_model
        self.text_projection = nn.Identity() if text_projection is None else text_projection

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        # No attention mask is needed: CLIP is causal, so padding has no effect, and SigLIP was trained without a mask.
        features: torch.Tensor = self.text_projection(self.text_model(tokens).pooler_output)
        return features


# --- transformer layers -----------------------------------------------------------------------------------------------
class Attention(Protocol):
    """Interface of the attention module of a CLIP layer."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear
    num_heads: int
    head_dim: int
    scale: float


class Layer(Protocol):
    """Interface of a CLIP layer, with the attribute names of `transformers`."""

    layer_norm1: nn.LayerNorm
    self_attn: Attention
    layer_norm2: nn.LayerNorm
    mlp: nn.Module


def causal_block(
    layer: Layer, hidden: torch.Tensor, before: KeysValues | None = None
) -> tuple[torch.Tensor, KeysValues]:
    """Apply one layer to the positions after those of `before`. Return the output and the keys and values."""
    normed = layer.layer_norm1(hidden)
    own = _keys_values(layer, normed)
    keys, values = _concatenate(before, own)
    length, reach = hidden.shape[1], keys.shape[2]
    # A position attends to all positions of `before`, and to the new positions up to and including itself.
    mask = torch.ones(length, reach, dtype=torch.bool, device=hidden.device).tril(reach - length)
    return _attend(layer, hidden, normed, (keys, values), mask), own


def keys_values(layer: Layer, hidden: torch.Tensor) -> KeysValues:
    """Return the keys and values of positions whose output is not needed."""
    return _keys_values(layer, layer.layer_norm1(hidden))


def last_block(layer: Layer, hidden: torch.Tensor, position: int, before: KeysValues | None = None) -> torch.Tensor:
    """Return the output [B, width] of one layer at `position`, which attends to all positions and to `before`."""
    normed = layer.layer_norm1(hidden)
    memory = _concatenate(before, _keys_values(layer, normed))
    own, own_normed = (tensor[:, position, None].contiguous() for tensor in (hidden, normed))
    return _attend(layer, own, own_normed, memory)[:, 0]


def _attend(
    layer: Layer, hidden: torch.Tensor, normed: torch.Tensor, memory: KeysValues, mask: torch.Tensor | None = None
) -> torch.Tensor:
    attention = layer.self_attn
    queries = _heads(attention, attention.q_proj(normed))
    mixed = functional.scaled_dot_product_attention(queries, *memory, attn_mask=mask, scale=attention.scale)
    hidden = hidden + attention.out_proj(mixed.transpose(1, 2).flatten(2))
    output: torch.Tensor = hidden + layer.mlp(layer.layer_norm2(hidden))
    return output


def _keys_values(layer: Layer, normed: torch.Tensor) -> KeysValues:
    attention = layer.self_attn
    return _heads(attention, attention.k_proj(normed)), _heads(attention, attention.v_proj(normed))


def _heads(attention: Attention, projected: torch.Tensor) -> torch.Tensor:
    return projected.view(*projected.shape[:-1], attention.num_heads, attention.head_dim).transpose(1, 2)


def _concatenate(before: KeysValues | None, own: KeysValues) -> KeysValues:
    if before is None:
        return own
    keys, values = (
        torch.cat([old.expand(len(new), -1, -1, -1), new], dim=2) for old, new in zip(before, own, strict=True)
    )
    return keys, values


# --- weights ----------------------------------------------------------------------------------------------------------
def frozen(module: nn.Module) -> nn.Module:
    """Switch the module to eval mode, disable its gradients, and return it."""
    return module.eval().requires_grad_(False)


def initial_weights(**modules: nn.Module) -> dict[str, torch.Tensor]:
    """Return references to the current weights, because an overlay may replace parameters later."""
    return {
        f"{part}.{name}": tensor for part, module in modules.items() for name, tensor in module.state_dict().items()
    }


def weight_hash(weights: Mapping[str, torch.Tensor]) -> str:
    """Return a SHA-256 of names, types, shapes and bytes. It does not depend on the file format of the weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():  # an empty tensor cannot be viewed as bytes
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def shared_copy(model: nn.Module) -> tuple[nn.Module, torch.device, torch.dtype]:
    """Return a frozen copy of a loaded model that shares its weights, with its device and precision.

    The modes, gradients and submodules of `model` are not modified, and later changes to them do not affect the copy.
    Only in-place changes of the weights, such as training steps, affect both.
    """
    weights = list(model.parameters())
    if not weights:
        raise Error(f"The model, a {type(model).__name__}, has no weights.", code="model-unsupported")
    devices = {tensor.device for tensor in weights}
    unsupported = {tensor.dtype for tensor in weights} - set(DTYPES.values())
    if len(devices) > 1 or "meta" in {device.type for device in devices}:
        places = " and ".join(sorted(map(str, devices)))
        raise Error(
            f"The weights of the model are on {places}: move all of them to one device.", code="model-unsupported"
        )
    if unsupported:
        raise Error(
            f"The model has weights of type {unsupported.pop()}: convert them to float32, bfloat16 or float16.",
            code="model-unsupported",
        )
    precision = next((tensor.dtype for tensor in weights if tensor.ndim > 1), weights[0].dtype)
    message = f"The model, a {type(model).__name__}, cannot be copied: {{reason}}."
    with learning(), translate_errors("model-unsupported", message):
        memo: dict[int, object] = {id(tensor): nn.Parameter(_alias(tensor), requires_grad=False) for tensor in weights}
        memo |= {id(tensor): _alias(tensor) for tensor in model.buffers()}
        copied = copy.deepcopy(model, memo)
    return copied.eval(), devices.pop(), precision


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    # A tensor created in inference mode cannot be part of an autograd graph, so it is copied.
    return tensor.clone() if tensor.is_inference() else tensor.detach()
