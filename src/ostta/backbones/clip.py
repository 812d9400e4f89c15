"""CLIP with the towers and tokenizers of `transformers`, and the base class of backbones with two towers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from ..core.overlay import in_single, own_precision, set_precision
from ..core.types import Error, Preprocessing
from .preprocessing import clip_preprocessing
from .prompts import PromptedText, ensemble, fill, prompt_too_long, refuse_special_tokens
from .protocol import DEFAULT_TEMPLATES
from .towers import ClipTower, ImageTower, TextTower, frozen, initial_weights, weight_hash

# Batch size of the text tower, in prompts.
BATCH = 256


class Tokenizer(Protocol):
    """Interface of the `transformers` tokenizers that ostta uses."""

    @property
    def all_special_tokens(self) -> Sequence[str]: ...

    @property
    def pad_token_id(self) -> int | None: ...

    def __call__(self, text: list[str], *, padding: bool, truncation: bool) -> Mapping[str, list[list[int]]]:
        """Return the token ids of each text under "input_ids"."""


class EncodesPrompts:
    """Base class of backbones with a text tower. Class embeddings are computed from the features of `embed`."""

    trainable = True
    remark = ""
    _weights: dict[str, torch.Tensor]

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return []

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Return raw features of the prompts in the order of `fill`, with gradients if `text` has them."""
        raise NotImplementedError

    @torch.no_grad()
    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        return ensemble(self.embed(classes, templates), len(classes))


class EncodesCompletePrompts(EncodesPrompts):
    """Base class of backbones whose text tower also encodes complete prompts (`ReadsPrompts`)."""

    @torch.no_grad()
    def read(self, prompts: Sequence[str]) -> torch.Tensor:
        """Return unit text embeddings of complete prompts."""
        return ensemble(self.embed(prompts, ("{}",)), len(prompts))


class TwoTowers(EncodesPrompts):
    """Base class of CLIP and SigLIP with `transformers` towers. Subclasses define tokenisation and default options."""

    restorable = True
    image_tower: ClassVar[type[ImageTower]] = ImageTower
    defaults: Mapping[str, Mapping[str, object]] = {}

    def __init__(self, id: str, model: nn.Module, tokenizer: Tokenizer, preprocessing: Preprocessing) -> None:
        """Take ownership of `model`, a `CLIPModel` or `SiglipModel`, and freeze it."""
        parts: Any = frozen(model)
        # The towers of SigLIP include the projection.
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
        """Move both towers to a device and a precision. Call this once, before the backbone is used."""
        if dtype != torch.float32:
            _ = self.weight_hash  # hash the stored weights before they are rounded
        for tower in (self.vision, self.text):
            set_precision(tower, device, dtype)
        self._weights = initial_weights(vision=self.vision, text=self.text)
        self.device, self.dtype = device, dtype

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id}, {self.preprocessing.images}, features of {self.feature_width})"

    @staticmethod
    def usual_preprocessing(image_size: int) -> Preprocessing:
        """Return the default preprocessing for a model without a processor config."""
        raise NotImplementedError

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        return self.tokenizer(prompts, padding=False, truncation=False)["input_ids"]

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        raise NotImplementedError

    def tokens(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> list[list[int]]:
        """Return the unpadded token ids of the prompts, in the order of `fill`."""
        prompts = fill(classes, templates)
        refuse_special_tokens(prompts, self.tokenizer.all_special_tokens, self.id)
        tokens = self._tokens(prompts)
        if max(map(max, tokens)) >= self.vocabulary:
            raise Error(
                f"The tokenizer of {self.id} does not fit its text tower: it has more tokens than the tower.",
                code="tokenizer-mismatch",
            )
        for place, own in enumerate(tokens):
            # Raise an error instead of truncating, which would remove the end of the class name.
            if len(own) > self.context_length:
                raise prompt_too_long(self.id, classes, len(prompts), place, self.context_length)
        return tokens

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        tokens = self.tokens(classes, templates)
        batches = [tokens[start : start + BATCH] for start in range(0, len(tokens), BATCH)]
        with own_precision(self.text):
            rows = [self.text(self._padded(batch).to(self.device)) for batch in batches]
        return in_single(torch.cat(rows), self.text)


class ClipFamily(TwoTowers):
    """Base class of CLIP and CLIP with learned prompts."""

    image_tower = ClipTower
    usual_preprocessing = staticmethod(clip_preprocessing)

    def prompted(self, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> PromptedText:
        """Return the prompts of `classes` as tunable vectors."""
        return PromptedText(self, classes, template)

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        """Pad to the longest prompt. The tower is causal and its features are read at the end-of-text token."""
        last = tokens[0][-1]
        padded = pad(tokens, max(map(len, tokens)), last)
        # In old `transformers` configs, an `eos_token_id` of 2 stands for the highest token id in the prompt. If the
        # tokenizer does not follow this convention, features are read at the wrong position and are nearly equal for
        # all classes.
        end: int = self.text.text_model.config.eos_token_id  # type: ignore[assignment, union-attr]
        ends = (padded if end == 2 else padded.eq(end).int()).argmax(1)
        if ends.tolist() != [len(own) - 1 for own in tokens]:
            raise Error(
                f"The tokenizer of {self.id} does not fit its text tower: it ends a prompt with token "
                f"{last}, and the tower expects {'the highest id' if end == 2 else end}.",
                code="tokenizer-mismatch",
            )
        return padded


class Clip(ClipFamily, EncodesCompletePrompts):
    """OpenAI CLIP and models of the same architecture, such as those of LAION."""


def pad(tokens: list[list[int]], length: int, filler: int) -> torch.Tensor:
    """Return token ids as a tensor [prompts, length], padded on the right with `filler`."""
    return torch.tensor([own + [filler] * (length - len(own)) for own in tokens])
