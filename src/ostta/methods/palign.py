"""PromptAlign: TPT on MaPLe's prompts, with image tokens aligned to source statistics (Abdul Samadh et al. 2023).

    loss = H(p) + w / B * sum over B blocks l of [ mean |m_l - M_l| / 2 + mean |v_l - V_l| / 2 ]

m_l and v_l are mean and variance, over the selected views, of every token at the input of block l; M_l and V_l are
those of source images. The paper aligns three blocks. The loop of the published code stops after two, but still divides
the weight by three (D11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.protocol import Backbone, HasTokenStatistics
from ..config.declare import Options, option
from ..core.losses import cosines, selected_entropy, unit
from ..core.overlay import TrainedOverlay, in_single, own_precision
from ..core.types import Error
from .base import MethodSummary
from .tpt import BATCH, TPT, TPTC, PromptTuning, TPTCOptions, TPTOptions

# Number of blocks that the paper aligns, and number of blocks that the published loop reaches.
BLOCKS, REACHED = 3, 2


@dataclass(frozen=True)
class AlignmentOptions(Options):
    """Options of the alignment. Defaults are those of the published code except the missing block."""

    weight: float = option(100.0, about="weight of the alignment loss")
    over: Literal["selected", "all"] = option(
        "selected", paper="all", number="D11", about="views whose token statistics are aligned"
    )
    blocks: Literal["all", "reference"] = option(
        "all",
        number="D11",
        about="number of aligned blocks: all three of the paper; `reference` reproduces an error of the"
        " published code, which aligns two",
        bug="two of the three announced blocks are aligned, with the weight of three",
    )


@dataclass(frozen=True)
class PAlignOptions(AlignmentOptions, TPTOptions):
    """Options of `palign`. Defaults are those of the published code except the missing block."""

    lr: float = option(5e-3, above=0, about="not used, because PromptAlign requires MaPLe")
    maple_lr: float = option(
        4e-2,
        paper=5e-4,
        number="D10",
        above=0,
        about="learning rate of the single AdamW step; the paper uses the value of PromptAlign for "
        "fine-grained data sets",
    )


@dataclass(frozen=True)
class PAlignCOptions(AlignmentOptions, TPTCOptions):
    """Options of `palign_c`. Defaults are those of the published code except the missing block."""

    momentum: float = option(0.9, paper=0.0, number="D17", at_least=0, below=1, about="momentum of SGD")


class Aligned(PromptTuning):
    """Base of `palign` and `palign_c`: the alignment loss, with the token statistics of the backbone."""

    def __init__(
        self,
        backbone: Backbone,
        classifier: torch.Tensor,
        classes: Sequence[str],
        options: PAlignOptions | PAlignCOptions,
    ) -> None:
        if not isinstance(backbone, HasTokenStatistics):
            raise Error(
                f"PromptAlign needs MaPLe prompts in both towers, and {backbone.id} has none: "
                'use "embedded+maple", or "BACKBONE+maple:PATH" with a MaPLe checkpoint.',
                code="backbone-unsuitable",
            )
        known = backbone.statistics
        if known is None or len(known.means) < BLOCKS:
            raise Error(
                f"There are no token statistics for {backbone.id}: take them from source images with "
                f"`ostta backbone statistics --backbone {backbone.id} --images folder:PATH`.",
                code="statistics-missing",
            )
        self.tower, self.source = backbone.tower, known
        self.over, self.blocks = options.over, BLOCKS if options.blocks == "all" else REACHED
        self.weight = options.weight / BLOCKS
        super().__init__(backbone, classifier, classes, options)

    def loss(
        self,
        prompts: TrainedOverlay,
        classifier: torch.Tensor,
        pixels: torch.Tensor,
        features: torch.Tensor,
        certain: torch.Tensor,
    ) -> torch.Tensor:
        with prompts.applied(), own_precision(self.tower):
            raw, tokens = self.tower.with_tokens(pixels[certain], self.blocks)
            if self.over == "all":
                # Only the blocks up to the input of the last aligned block are run.
                batches = [self.tower.tokens(batch, self.blocks) for batch in torch.split(pixels, BATCH)]
                tokens = [torch.cat(block) for block in zip(*batches, strict=True)]
        loss = selected_entropy(self.logit_scale * cosines(unit(in_single(raw, self.tower)), classifier))
        return loss + self.weight * alignment(tokens, self.source.means, self.source.variances)


def alignment(tokens: Sequence[torch.Tensor], means: torch.Tensor, variances: torch.Tensor) -> torch.Tensor:
    """Return half the mean absolute differences of means and of variances, summed over blocks.

    Each entry of `tokens` has the shape [views, tokens, width].
    """
    terms = [
        0.5 * (seen.mean(0) - mean).abs().mean() + 0.5 * (seen.var(0, correction=0) - variance).abs().mean()
        for seen, mean, variance in zip(tokens, means, variances, strict=False)
    ]
    return torch.stack(terms).sum()


class PAlign(Aligned, TPT):
    """Take one step for each desired image, always from the initial prompts."""

    Options = PAlignOptions
    summary = MethodSummary(
        "MaPLe's prompts, for one image at a time",
        "score bank",
        "1 forward; desired: +70 forwards, 6 backwards, and of the text tower 2 forwards, 1 backward",
        "Abdul Samadh et al. 2023 (PromptAlign)",
    )


class PAlignC(Aligned, TPTC):
    """Tune prompts continuously over the whole stream."""

    Options = PAlignCOptions
    summary = MethodSummary(
        "MaPLe's prompts",
        "prompts, their momentum, score bank",
        PAlign.summary.passes,
        "Abdul Samadh et al. 2023 (PromptAlign), without its resets",
    )
