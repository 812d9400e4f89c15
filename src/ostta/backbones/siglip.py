"""SigLIP, and SigLIP 2 of fixed resolution, over the towers and tokenizers of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..core.types import Error
from .clip import TwoTowers, pad
from .preprocessing import siglip_preprocessing

# The models are trained with a sigmoid and a bias: cosines of matching pairs are near 0.1 and others are below zero,
# where the grid search of the identifier has no points.
SIGMOID_DEFAULTS: Mapping[str, Mapping[str, object]] = {"lda": {"search": "exact"}}


class Siglip(TwoTowers):
    """SigLIP, and SigLIP 2 of fixed resolution."""

    defaults = SIGMOID_DEFAULTS
    usual_preprocessing = staticmethod(siglip_preprocessing)

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        # Both generations were trained on lower-case text. The tokenizer of SigLIP lowers the case, that of SigLIP 2
        # does not.
        return super()._tokens([prompt.lower() for prompt in prompts])

    def _padded(self, tokens: list[list[int]]) -> torch.Tensor:
        """Pad on the right to the full length, as in training: the features are read at the last position."""
        filler = self.tokenizer.pad_token_id
        if filler is None:
            raise Error(
                f"The tokenizer of {self.id} has no pad_token, which a SigLIP requires: use the tokenizer of the "
                "model.",
                code="tokenizer-mismatch",
            )
        return pad(tokens, self.context_length, filler)
