"""PromptAlign: TPT on MaPLe's prompts, with the image tokens held to their source statistics (Abdul Samadh et al. 2023).

    loss = H(p) + w / B * sum over B blocks l of [ mean |m_l - M_l| / 2 + mean |v_l - V_l| / 2 ]

m_l and v_l are mean and variance, over the selected views, of every token at the input of block l; M_l and V_l those of source
images. Announced for three blocks, the published loop stops after two while the weight is still divided by three (D11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.protocol import Backbone, HasTokenStatistics
from ..config.declare import Options, option
from ..core.devices import in_single, own_precision
from ..core.losses import selected_entropy
from ..core.scores import cosines, unit
from ..core.types import Error
from .base import Facts
from .tpt import BATCH, TPT, TPTC, TPTCOptions, TPTOptions
from .trained_overlay import TrainedOverlay

# The blocks that are announced to be aligned, and those that the published loop reaches.
BLOCKS, REACHED = 3, 2


@dataclass(frozen=True)
class AlignmentOptions(Options):
    """Options of the alignment. Defaults are the published code's, save for the missing block."""

    weight: float = option(100.0, about="weight of the alignment")
    over: Literal["selected", "all"] = option(
        "selected", paper="all", number="D11", about="views whose token statistics are aligned"
    )
    blocks: Literal["all", "reference"] = option(
        "all",
        number="D11",
        about="how many of the three announced blocks are aligned; `reference` is the published slip",
        bug="two of the three announced blocks are aligned, with the weight of three",
    )


@dataclass(frozen=True)
class PAlignOptions(AlignmentOptions, TPTOptions):
    """Defaults are the published code's, save for the missing block."""

    lr: float = option(5e-3, above=0, about="has no part: PromptAlign is for MaPLe only")
    maple_lr: float = option(
        4e-2,
        paper=5e-4,
        number="D10",
        above=0,
        about="rate of the one AdamW step; the paper's is PromptAlign's for fine-grained sets",
    )


@dataclass(frozen=True)
class PAlignCOptions(AlignmentOptions, TPTCOptions):
    """Defaults are the published code's, save for the missing block."""

    momentum: float = option(0.9, paper=0.0, number="D17", at_least=0, below=1, about="momentum of SGD")


class Aligned:
    """Base of `palign` and `palign_c`: the loss that both have."""

    logit_scale: float

    def align(self, backbone: Backbone, options: PAlignOptions | PAlignCOptions) -> None:
        """Read the token statistics of the backbone; raise an Error if it has none."""
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
                # Only the first blocks are run, as the input of the last aligned one is all that is needed.
                batches = [self.tower.tokens(batch, self.blocks) for batch in torch.split(pixels, BATCH)]
                tokens = [torch.cat(block) for block in zip(*batches, strict=True)]
        loss = selected_entropy(self.logit_scale * cosines(unit(in_single(raw, self.tower)), classifier))
        return loss + self.weight * alignment(tokens, self.source.means, self.source.variances)


def alignment(tokens: Sequence[torch.Tensor], means: torch.Tensor, variances: torch.Tensor) -> torch.Tensor:
    """Half the mean absolute differences of means and of variances, summed over blocks; tokens are [views, tokens, width]."""
    terms = [
        0.5 * (seen.mean(0) - mean).abs().mean() + 0.5 * (seen.var(0, correction=0) - variance).abs().mean()
        for seen, mean, variance in zip(tokens, means, variances, strict=False)
    ]
    return torch.stack(terms).sum()


class PAlign(Aligned, TPT):
    """One step for each desired image, from the initial prompts every time."""

    Options = PAlignOptions
    facts = Facts(
        "MaPLe's prompts, for one image at a time",
        "score bank",
        "1 forward; desired: +70 forwards, 6 backwards, and of the text tower 2 forwards, 1 backward",
        "Abdul Samadh et al. 2023 (PromptAlign)",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: PAlignOptions
    ) -> None:
        self.align(backbone, options)
        super().__init__(backbone, classifier, classes, options)


class PAlignC(Aligned, TPTC):
    """Prompts that are tuned through the whole stream."""

    Options = PAlignCOptions
    facts = Facts(
        "MaPLe's prompts",
        "prompts, their momentum, score bank",
        PAlign.facts.passes,
        "Abdul Samadh et al. 2023 (PromptAlign), without its resets",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: PAlignCOptions
    ) -> None:
        self.align(backbone, options)
        super().__init__(backbone, classifier, classes, options)
