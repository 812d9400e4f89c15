"""Layers of a CLIP's transformers from outside, for what their public forward has no way in: going on from earlier positions,
and reading one position alone.

A tower's features are read at one position. In its last layer the others are keys and values and nothing else, so their queries
and their share of the dense layers, five sixths of that layer, need not be worked out.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

# Keys and values of one layer, [B, heads, L, width of a head].
Memory = tuple[torch.Tensor, torch.Tensor]


class Attention(Protocol):
    """What is used of the attention of a layer."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear
    num_heads: int
    head_dim: int
    scale: float


class Layer(Protocol):
    """What is used of a layer of CLIP's transformers, as `transformers` calls it."""

    layer_norm1: nn.LayerNorm
    self_attn: Attention
    layer_norm2: nn.LayerNorm
    mlp: nn.Module


def causal_block(layer: Layer, hidden: torch.Tensor, before: Memory | None = None) -> tuple[torch.Tensor, Memory]:
    """One layer over positions that follow those of `before`, and the keys and values of these positions."""
    normed = layer.layer_norm1(hidden)
    own = _memory(layer, normed)
    keys, values = _joined(before, own)
    length, reach = hidden.shape[1], keys.shape[2]
    # Each position sees all that came before this part, and this part up to itself.
    mask = torch.ones(length, reach, dtype=torch.bool, device=hidden.device).tril(reach - length)
    return _attended(layer, hidden, normed, (keys, values), mask), own


def memory_of(layer: Layer, hidden: torch.Tensor) -> Memory:
    """The keys and values alone: all that is needed of positions that are not read."""
    return _memory(layer, layer.layer_norm1(hidden))


def last_block(layer: Layer, hidden: torch.Tensor, position: int, before: Memory | None = None) -> torch.Tensor:
    """What one layer gives at `position`, [B, width], where that position sees all others and those of `before`."""
    normed = layer.layer_norm1(hidden)
    memory = _joined(before, _memory(layer, normed))
    own, own_normed = (tensor[:, position, None].contiguous() for tensor in (hidden, normed))
    return _attended(layer, own, own_normed, memory)[:, 0]


def _attended(
    layer: Layer, hidden: torch.Tensor, normed: torch.Tensor, memory: Memory, mask: torch.Tensor | None = None
) -> torch.Tensor:
    attention = layer.self_attn
    queries = _heads(attention, attention.q_proj(normed))
    mixed = functional.scaled_dot_product_attention(queries, *memory, attn_mask=mask, scale=attention.scale)
    hidden = hidden + attention.out_proj(mixed.transpose(1, 2).flatten(2))
    given: torch.Tensor = hidden + layer.mlp(layer.layer_norm2(hidden))
    return given


def _memory(layer: Layer, normed: torch.Tensor) -> Memory:
    attention = layer.self_attn
    return _heads(attention, attention.k_proj(normed)), _heads(attention, attention.v_proj(normed))


def _heads(attention: Attention, projected: torch.Tensor) -> torch.Tensor:
    return projected.view(*projected.shape[:-1], attention.num_heads, attention.head_dim).transpose(1, 2)


def _joined(before: Memory | None, own: Memory) -> Memory:
    if before is None:
        return own
    keys, values = (
        torch.cat([old.expand(len(new), -1, -1, -1), new], dim=2) for old, new in zip(before, own, strict=True)
    )
    return keys, values
