"""The text tower of a CLIP from prompt vectors: what prompt tuning differentiates.

A prompt is start, context, and the class's own tokens up to the end of text. CLIP's text attention is causal, so start and context
are worked out once for all classes, and each class adds only its own few positions. `tests/test_context.py` holds this to the
public forward of `transformers`, which has no way in for either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.devices import in_single, own_precision
from ..core.types import Error
from .blocks import Memory, causal_block, last_block, memory_of
from .clip import Clip
from .protocol import DEFAULT_TEMPLATES

CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class _Group:
    """Classes whose own parts have one length, and those parts as token ids, [classes, length]."""

    classes: list[int]
    tokens: torch.Tensor


class PromptedText:
    """The prompts of `classes`, with the words of `template` before {} as vectors that may be tuned.

    free:          tensors that may be tuned and belong to no module: the context itself.
    vision_names:  parameters of the image tower that belong to the prompts; none here, where only text has prompts.
    """

    vision_names: tuple[str, ...] = ()

    def __init__(self, clip: Clip, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> None:
        tower: Any = clip.text
        device, self._text = clip.device, clip.text
        self._embeddings = tower.text_model.embeddings
        self._layers = tower.text_model.encoder.layers
        self._norm, self._projection = tower.text_model.final_layer_norm, tower.text_projection
        prompts = clip.tokens(classes, (template,))
        shared = _shared_tokens(clip, template)
        parts = [prompt[len(shared) :] for prompt in prompts if prompt[: len(shared)] == shared]
        if len(parts) < len(prompts):
            raise Error(
                f"The template {template!r} cannot be tuned on {clip.id}: its words run into the class name; "
                "put a space before {}."
            )
        self._shared = torch.tensor(shared, device=device)
        self._groups = []
        for length in sorted({len(part) for part in parts}):
            members = [index for index, part in enumerate(parts) if len(part) == length]
            self._groups.append(_Group(members, torch.tensor([parts[index] for index in members], device=device)))
        in_turn = torch.tensor([index for group in self._groups for index in group.classes], device=device)
        self._order = in_turn.argsort()
        self.initial_context = self._words(self._shared[1:]).detach()
        self.free: dict[str, torch.Tensor] = {CONTEXT: self.initial_context}

    def classify(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Raw features, one row a class, with `tensors` in place of the prompts' own values, by name."""
        return self.encode(tensors[CONTEXT])

    def encode(self, context: torch.Tensor, deeper: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """`_encode` in the precision of the text tower."""
        with own_precision(self._text):
            return in_single(self._encode(context, deeper), self._text)

    def _encode(self, context: torch.Tensor, deeper: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """Raw features, one row a class, of the prompts with `context` [n, width] in place of their first n words.

        `deeper` [n, width] each take those places again at the input of the second layer, the third, and so on.
        """
        start, rest = self._words(self._shared[:1]), self._words(self._shared[1 + len(context) :])
        places = self._embeddings.position_embedding.weight
        shared = (torch.cat([start, context, rest]) + places[: len(self._shared)])[None]
        memory: list[Memory] = []
        for number, layer in enumerate(self._layers):
            if 0 < number <= len(deeper):
                prompt = deeper[number - 1][None]
                shared = torch.cat([shared[:, :1], prompt, shared[:, 1 + prompt.shape[1] :]], dim=1)
            if number == len(self._layers) - 1:
                memory.append(memory_of(layer, shared))
            else:
                shared, own = causal_block(layer, shared)
                memory.append(own)
        ends = []
        for group in self._groups:
            length = group.tokens.shape[1]
            hidden = self._words(group.tokens) + places[len(self._shared) : len(self._shared) + length]
            for layer, before in zip(self._layers[:-1], memory[:-1], strict=True):
                hidden, _ = causal_block(layer, hidden, before)
            ends.append(last_block(self._layers[-1], hidden, -1, memory[-1]))
        features: torch.Tensor = self._projection(self._norm(torch.cat(ends)[self._order]))
        return features

    def _words(self, tokens: torch.Tensor) -> torch.Tensor:
        # Looked up when needed: an overlay may have other values in the place of the tower's own.
        words: torch.Tensor = self._embeddings.token_embedding(tokens)
        return words


def _shared_tokens(clip: Clip, template: str) -> list[int]:
    """Start of text and the words before {}."""
    words = template.partition("{}")[0].strip()
    if not words:
        raise Error(f'The template {template!r} has no words before {{}} to tune; "a photo of a {{}}." has four.')
    tokens: list[int] = clip.tokens([words], ("{}",))[0][:-1]
    return tokens
