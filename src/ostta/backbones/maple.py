"""MaPLe: learned prompts in both towers of a CLIP, the image side's projected from the text side's (Khattak et al. 2023).

    text:   [start, P_0, rest of the prompt] -> layer 0 -> P_1 in the place of P_0 -> layer 1 -> P_2 -> layer 2 -> ...
    image:  [class, patches, f_0(P_0)] -> layer 0 -> f_1(P_1) in the place of f_0(P_0) -> layer 1 -> ...

The prompts belong to the image tower, as its submodule `prompts`, so that an overlay over that tower reaches all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn

from ..core.types import Error
from .clip import Clip
from .context import PromptedText
from .prompts import check_templates, ensemble
from .protocol import DEFAULT_TEMPLATES, Statistics
from .towers import ClipTower, frozen, initial_weights, weight_hash

# As published: two tokens, in the first three layers.
TOKENS, DEPTH = 2, 3


class MaplePrompts(nn.Module):
    """The prompts of the text tower and their projections to the image tower; parameters are named as in public checkpoints."""

    def __init__(self, text_width: int, vision_width: int, tokens: int = TOKENS, depth: int = DEPTH) -> None:
        super().__init__()
        deeper = range(depth - 1)
        self.ctx = nn.Parameter(torch.zeros(tokens, text_width))
        self.proj = nn.Linear(text_width, vision_width)
        self.compound_prompts_text = nn.ParameterList([torch.zeros(tokens, text_width) for _ in deeper])
        self.compound_prompt_projections = nn.ModuleList([nn.Linear(text_width, vision_width) for _ in deeper])

    def text(self) -> list[torch.Tensor]:
        """One prompt [tokens, text width] a layer."""
        return [self.ctx, *self.compound_prompts_text]

    def visual(self) -> list[torch.Tensor]:
        """One prompt [tokens, vision width] a layer."""
        projections = [self.proj, *self.compound_prompt_projections]
        return [project(prompt) for project, prompt in zip(projections, self.text(), strict=True)]


class MapleTower(ClipTower):
    """An image tower with prompts behind its patches."""

    def __init__(self, vision_model: nn.Module, visual_projection: nn.Module, prompts: MaplePrompts) -> None:
        super().__init__(vision_model, visual_projection)
        self.prompts = prompts

    @property
    def blocks(self) -> int:
        model: Any = self.vision_model
        return len(model.encoder.layers)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.with_tokens(pixels, 0)[0]

    def with_tokens(self, pixels: torch.Tensor, blocks: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Raw features, and the inputs [B, tokens, width] of the first `blocks` blocks, prompts included."""
        seen: list[torch.Tensor] = []
        for hidden in self._inputs(pixels, self.blocks):
            if len(seen) < blocks:
                seen.append(hidden)
        return self.read(hidden), seen

    def tokens(self, pixels: torch.Tensor, blocks: int) -> list[torch.Tensor]:
        """The inputs of the first `blocks` blocks alone: nothing behind the last of them is worked out."""
        return list(self._inputs(pixels, blocks))

    def _inputs(self, pixels: torch.Tensor, blocks: int) -> Iterator[torch.Tensor]:
        model: Any = self.vision_model
        visual, patches = self.prompts.visual(), model.embeddings(pixels)
        hidden = model.pre_layrnorm(torch.cat([patches, visual[0].expand(patches.shape[0], -1, -1)], dim=1))
        yield hidden
        for number, layer in enumerate(model.encoder.layers[: blocks - 1], start=1):
            hidden = _with_prompt(layer(hidden, None), visual, number)
            yield hidden


def _with_prompt(hidden: torch.Tensor, visual: list[torch.Tensor], number: int) -> torch.Tensor:
    """The input of block `number`: its own prompt in the place of the last one, where there is one for that block."""
    if number >= len(visual):
        return hidden
    prompt = visual[number]
    return torch.cat([hidden[:, : -len(prompt)], prompt.expand(hidden.shape[0], -1, -1)], dim=1)


class MapleText(PromptedText):
    """The prompts of `classes` behind the learned vectors; what may be tuned lies in the image tower."""

    def __init__(self, maple: Maple, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> None:
        super().__init__(maple, classes, template)
        self._tower = maple.tower
        self.free = {}
        self.vision_names = tuple(f"prompts.{name}" for name, _ in self._tower.prompts.named_parameters())
        taken = len(self._tower.prompts.ctx)
        if len(self._shared) <= taken:
            raise Error(
                f"The template {template!r} is too short for MaPLe: {taken} words before {{}} give way to its prompts."
            )

    def classify(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        prompts = self._tower.prompts
        deeper = [
            tensors.get(f"prompts.compound_prompts_text.{number}", own)
            for number, own in enumerate(prompts.compound_prompts_text)
        ]
        return self.encode(tensors.get("prompts.ctx", prompts.ctx), deeper)


class Maple(Clip):
    """A CLIP with MaPLe's prompts, and the token statistics that PromptAlign aligns with, where they are known."""

    def __init__(self, clip: Clip, prompts: MaplePrompts, id: str, statistics: Statistics | None = None) -> None:
        base: Any = clip.vision
        self._clip = clip
        self.id = id
        frozen(prompts)
        self.tower = MapleTower(base.vision_model, base.visual_projection, prompts).eval()
        self.vision = self.tower
        self.text, self.tokenizer, self.preprocessing = clip.text, clip.tokenizer, clip.preprocessing
        self.logit_scale, self.feature_width = clip.logit_scale, clip.feature_width
        self.context_length, self.vocabulary = clip.context_length, clip.vocabulary
        self.defaults, self.remark, self.restorable = clip.defaults, clip.remark, clip.restorable
        self.device, self.dtype = clip.device, clip.dtype
        self.statistics = statistics
        self._check()
        self._weights = initial_weights(vision=self.vision, text=self.text)
        if statistics is not None:
            self._weights |= {"statistics.means": statistics.means, "statistics.variances": statistics.variances}

    def _check(self) -> None:
        model: Any = self.tower.vision_model
        text: Any = self.text.text_model
        prompts = self.tower.prompts
        widths, fitting = (
            (prompts.ctx.shape[1], prompts.proj.out_features),
            (text.config.hidden_size, model.config.hidden_size),
        )
        if widths != fitting:
            raise Error(
                f"The MaPLe prompts are for towers of widths {widths[0]} and {widths[1]}, text and image, and those of "
                f"{self._clip.id} have {fitting[0]} and {fitting[1]}."
            )
        tokens = model.embeddings.num_positions + len(prompts.ctx)
        wanted = (len(model.encoder.layers), tokens, model.config.hidden_size)
        if self.statistics is not None:
            for name, tensor in (("means", self.statistics.means), ("variances", self.statistics.variances)):
                # Statistics of the first blocks alone will do: alignment stops there.
                if tensor.ndim != 3 or tensor.shape[1:] != wanted[1:] or not 1 <= len(tensor) <= wanted[0]:
                    raise Error(
                        f"The token {name} have the shape {list(tensor.shape)}: {self.id} needs up to {list(wanted)}, "
                        "blocks, tokens and width."
                    )

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def place(self, device: torch.device, dtype: torch.dtype) -> None:
        super().place(device, dtype)
        if self.statistics is not None:
            self.statistics = Statistics(self.statistics.means.to(device), self.statistics.variances.to(device))
            self._weights |= {
                "statistics.means": self.statistics.means,
                "statistics.variances": self.statistics.variances,
            }

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return self._clip.unfamiliar(classes)

    def prompted(self, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> MapleText:
        return MapleText(self, classes, template)

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        # In the order of `fill`: all templates of the first class, then those of the second.
        rows = [self.prompted(classes, template).classify({}) for template in check_templates(templates)]
        return torch.stack(rows, dim=1).flatten(0, 1)

    def read(self, prompts: Sequence[str]) -> torch.Tensor:
        raise Error(
            f"The learned prompts of {self.id} stand in the place of a prompt's first words, so that classes have no descriptions here: "
            "give their names alone."
        )

    @torch.no_grad()
    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        return ensemble(self.embed(classes, templates), len(classes))


def new_prompts(clip: Clip, words: str = "a photo") -> MaplePrompts:
    """Untrained prompts for `clip`: its first from `words`, the deeper ones small random vectors."""
    vision: Any = clip.vision
    text: Any = clip.text
    tower = text.text_model
    prompts = MaplePrompts(tower.config.hidden_size, vision.vision_model.config.hidden_size)
    tokens = clip.tokens([words], ("{}",))[0][1:-1]
    if len(tokens) != TOKENS:
        raise Error(f"The prompts have {TOKENS} tokens, and {words!r} has {len(tokens)}.")
    with torch.no_grad():
        prompts.ctx.copy_(tower.embeddings.token_embedding.weight[tokens])
        for prompt in prompts.compound_prompts_text:
            nn.init.normal_(prompt, std=0.02)
    return prompts
