"""The text tower of a CLIP from context vectors: what prompt tuning differentiates.

A prompt is start, context, and the class's own tokens up to the end of text. CLIP's text attention is causal, so start and context
are worked out once for all classes, and each class adds only its own few positions. The public forward of `transformers` has no
way in for either; this module alone reaches inside, and `tests/test_context.py` holds it to that forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn import functional

from ..core.types import Error
from .clip import Clip
from .prompts import require_prompt_tuning
from .protocol import DEFAULT_TEMPLATES, Backbone

# Keys and values of one layer, [B, heads, L, width of a head].
Memory = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Group:
    """Classes whose own parts have one length, and those parts embedded, [classes, length, width]."""

    classes: list[int]
    embeddings: torch.Tensor


class PromptedText:
    """The prompts of `classes`, with the words of `template` before {} as vectors that may be tuned."""

    def __init__(self, backbone: Backbone, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> None:
        require_prompt_tuning(backbone)
        clip = cast(Clip, backbone)
        tower: Any = clip.text
        self._layers = tower.text_model.encoder.layers
        self._norm, self._projection = tower.text_model.final_layer_norm, tower.text_projection
        words, positions = (
            part.weight.detach()
            for part in (tower.text_model.embeddings.token_embedding, tower.text_model.embeddings.position_embedding)
        )
        prompts = clip.tokens(classes, (template,))
        shared = _shared_tokens(clip, template)
        parts = [prompt[len(shared) :] for prompt in prompts if prompt[: len(shared)] == shared]
        if len(parts) < len(prompts):
            raise Error(
                f"The template {template!r} cannot be tuned on {clip.id}: its words run into the class name; "
                "put a space before {}."
            )
        self.initial_context = words[shared[1:]]
        self._start = words[shared[:1]]
        self._positions = positions[: len(shared)]
        self._groups = []
        for length in sorted({len(part) for part in parts}):
            members = [index for index, part in enumerate(parts) if len(part) == length]
            own = torch.tensor([parts[index] for index in members])
            self._groups.append(_Group(members, words[own] + positions[len(shared) : len(shared) + length]))
        in_turn = torch.tensor([index for group in self._groups for index in group.classes])
        self._order = in_turn.argsort()

    def encode(self, context: torch.Tensor) -> torch.Tensor:
        """Raw features, one row a class, of the prompts with `context` [n, width] in place of `initial_context`."""
        shared = (torch.cat([self._start, context]) + self._positions)[None]
        memory: list[Memory] = []
        for layer in self._layers:
            shared, own = _block(layer, shared)
            memory.append(own)
        ends = []
        for group in self._groups:
            hidden = group.embeddings
            for layer, before in zip(self._layers, memory, strict=True):
                hidden, _ = _block(layer, hidden, before)
            ends.append(hidden[:, -1])
        features: torch.Tensor = self._projection(self._norm(torch.cat(ends)[self._order]))
        return features


def _shared_tokens(clip: Clip, template: str) -> list[int]:
    """Start of text and the words before {}."""
    words = template.partition("{}")[0].strip()
    if not words:
        raise Error(f'The template {template!r} has no words before {{}} to tune; "a photo of a {{}}." has four.')
    tokens: list[int] = clip.tokens([words], ("{}",))[0][:-1]
    return tokens


def _block(layer: Any, hidden: torch.Tensor, before: Memory | None = None) -> tuple[torch.Tensor, Memory]:
    """One layer over positions that follow those of `before`, and the keys and values of these positions."""
    attention, normed = layer.self_attn, layer.layer_norm1(hidden)
    queries, own_keys, own_values = (
        projection(normed).unflatten(-1, (attention.num_heads, attention.head_dim)).transpose(1, 2)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    keys, values = own_keys, own_values
    if before is not None:
        keys, values = (
            torch.cat([old.expand(len(hidden), -1, -1, -1), new], dim=2)
            for old, new in zip(before, (own_keys, own_values), strict=True)
        )
    length, reach = hidden.shape[1], keys.shape[2]
    # Each position sees all that came before this part, and this part up to itself.
    mask = torch.ones(length, reach, dtype=torch.bool, device=hidden.device).tril(reach - length)
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=attention.scale)
    hidden = hidden + attention.out_proj(mixed.transpose(1, 2).flatten(2))
    return hidden + layer.mlp(layer.layer_norm2(hidden)), (own_keys, own_values)
