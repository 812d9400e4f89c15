"""Backbones of the CLIP and SigLIP families, over the towers and tokenizers of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import nn

from ..core.devices import in_single, own_precision, set_precision
from ..core.types import Error, Preprocessing
from .preprocessing import clip_preprocessing, siglip_preprocessing
from .prompts import ensemble, fill, refuse_special_tokens
from .protocol import DEFAULT_TEMPLATES
from .towers import ClipTower, ImageTower, TextTower, frozen, initial_weights, weight_hash

if TYPE_CHECKING:
    from .context import PromptedText

# Prompts that go through the text tower at once.
BATCH = 256


class Tokenizer(Protocol):
    """What is asked of a tokenizer of `transformers`."""

    @property
    def all_special_tokens(self) -> Sequence[str]: ...

    @property
    def pad_token_id(self) -> int | None: ...

    def __call__(self, text: list[str], *, padding: bool, truncation: bool) -> Mapping[str, list[list[int]]]:
        """The token ids of each text under "input_ids"."""


class TwoTowers:
    """A `Backbone` whose text tower is there as well. A family says how it tokenises and what it recommends."""

    trainable = True
    restorable = True
    remark = ""
    image_tower: ClassVar[type[ImageTower]] = ImageTower
    defaults: Mapping[str, Mapping[str, object]] = {}

    def __init__(self, id: str, model: nn.Module, tokenizer: Tokenizer, preprocessing: Preprocessing) -> None:
        """`model` is a `CLIPModel` or `SiglipModel`; it is frozen here."""
        parts: Any = frozen(model)
        # SigLIP's towers project inside.
        projection = getattr(parts, "visual_projection", None)
        self.id = id
        self.vision: nn.Module = self.image_tower(parts.vision_model, projection).eval()
        self.text = TextTower(parts.text_model, getattr(parts, "text_projection", None)).eval()
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        self.logit_scale = float(parts.logit_scale.float().exp())
        self.feature_width = int(projection.out_features if projection else parts.config.vision_config.hidden_size)
        self.context_length = int(parts.config.text_config.max_position_embeddings)
        self.vocabulary = int(parts.config.text_config.vocab_size)
        self._weights = initial_weights(vision=self.vision, text=self.text)
        self.device, self.dtype = next(self.text.parameters()).device, torch.float32

    def place(self, device: torch.device, dtype: torch.dtype) -> None:
        """Put both towers on a device and into a precision. To be called once, before anybody uses the backbone."""
        if dtype != torch.float32:
            _ = self.weight_hash  # of the weights as they are stored, not as they are rounded
        for tower in (self.vision, self.text):
            set_precision(tower, device, dtype)
        self._weights = initial_weights(vision=self.vision, text=self.text)
        self.device, self.dtype = device, dtype

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.preprocessing.images}, features of {self.feature_width})"

    @staticmethod
    def usual_preprocessing(image_size: int) -> Preprocessing:
        """For a model that comes without a processor config."""
        raise NotImplementedError

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        return self.tokenizer(prompts, padding=False, truncation=False)["input_ids"]

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        raise NotImplementedError

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return []

    def tokens(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> list[list[int]]:
        """The prompts of the classes, in the order of `fill`, as token ids without padding; an Error if one does not fit."""
        prompts = fill(classes, templates)
        refuse_special_tokens(prompts, self.tokenizer.all_special_tokens, self.id)
        tokens = self._tokens(prompts)
        if max(map(max, tokens)) >= self.vocabulary:
            raise Error(f"The tokenizer of {self.id} does not fit its text tower: it knows more words than the tower.")
        for place, own in enumerate(tokens):
            if len(own) > self.context_length:
                # The customary silent cut would take away the end of the name, or even all of it.
                name = classes[place * len(classes) // len(prompts)]
                raise Error(
                    f"The class {name!r} is too long for {self.id}: its prompt has {len(own)} tokens, "
                    f"and the text tower reads {self.context_length}."
                )
        return tokens

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Raw features of the prompts, in the order of `fill`; with graph where the text tower's weights carry one."""
        tokens = self.tokens(classes, templates)
        batches = [tokens[start : start + BATCH] for start in range(0, len(tokens), BATCH)]
        with own_precision(self.text):
            rows = [self.text(self._padded(batch).to(self.device)) for batch in batches]
        return in_single(torch.cat(rows), self.text)

    @torch.no_grad()
    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        return ensemble(self.embed(classes, templates), len(classes))

    @torch.no_grad()
    def read(self, prompts: Sequence[str]) -> torch.Tensor:
        """Unit text embeddings of whole prompts."""
        return ensemble(self.embed(prompts, ("{}",)), len(prompts))


class Clip(TwoTowers):
    """OpenAI's CLIP and its relatives, such as LAION's."""

    image_tower = ClipTower
    usual_preprocessing = staticmethod(clip_preprocessing)

    def prompted(self, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> PromptedText:
        """The text tower from prompt vectors."""
        from .context import PromptedText

        return PromptedText(self, classes, template)

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        """Padded to the longest prompt: the tower is causal and reads its answer at the end of the text."""
        last = tokens[0][-1]
        padded = _pad(tokens, max(map(len, tokens)), last)
        # `transformers` keeps a rule for old configs: an `eos_token_id` of 2 means the highest id of the prompt. With a
        # tokenizer that it does not fit, the tower would read elsewhere and all classes would look nearly the same.
        end: int = self.text.text_model.config.eos_token_id  # type: ignore[assignment, union-attr]
        found = (padded if end == 2 else padded.eq(end).int()).argmax(1)
        if found.tolist() != [len(own) - 1 for own in tokens]:
            raise Error(
                f"The tokenizer of {self.id} does not fit its text tower: it ends a prompt with token "
                f"{last}, and the tower looks for {'the highest id' if end == 2 else end}."
            )
        return padded


class Siglip(TwoTowers):
    """SigLIP, and SigLIP 2 of fixed resolution."""

    # Trained with a sigmoid and a bias: good matches have cosines near 0.1 and others below zero, where the grid has no points.
    defaults: Mapping[str, Mapping[str, object]] = {"lda": {"search": "exact"}}
    usual_preprocessing = staticmethod(siglip_preprocessing)

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        # Both generations were trained on lower case. SigLIP's tokenizer sees to it; SigLIP 2's, which is Gemma's, does not.
        return super()._tokens([prompt.lower() for prompt in prompts])

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        """Padded to the full length on the right, as in training: the tower reads its answer at the last position."""
        filler = self.tokenizer.pad_token_id
        if filler is None:
            raise Error(f"The tokenizer of {self.id} names no pad_token, which a SigLIP needs.")
        return _pad(tokens, self.context_length, filler)


def _pad(tokens: list[list[int]], length: int, filler: int) -> torch.Tensor:
    return torch.tensor([own + [filler] * (length - len(own)) for own in tokens])
