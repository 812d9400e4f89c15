"""SigLIP and fixed-resolution SigLIP 2 with the towers and tokenizers of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..core.types import Error
from .clip import EncodesCompletePrompts, TwoTowers, pad
from .preprocessing import siglip_preprocessing

# The models are trained with a sigmoid loss and a bias. The cosine similarity is about 0.1 for matching pairs and
# negative for other pairs, outside the grid of the identifier's default search.
SIGMOID_DEFAULTS: Mapping[str, Mapping[str, object]] = {"lda": {"search": "exact"}}


class Siglip(TwoTowers, EncodesCompletePrompts):
    """SigLIP or fixed-resolution SigLIP 2."""

    defaults = SIGMOID_DEFAULTS
    usual_preprocessing = staticmethod(siglip_preprocessing)

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        # Both generations were trained on lower-case text, but only the tokenizer of SigLIP converts to lower case.
        return super()._tokens([prompt.lower() for prompt in prompts])

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        """Pad on the right to the full length, as in training. The features are read at the last position."""
        filler = self.tokenizer.pad_token_id
        if filler is None:
            raise Error(
                f"The tokenizer of {self.id} has no pad_token, which a SigLIP requires: use the tokenizer of the "
                "model.",
                code="tokenizer-mismatch",
            )
        return pad(tokens, self.context_length, filler)
