"""The closed-set study: lower the entropy of confident images, with any group of parameters (paper section 3, appendix).

    published earlier:  cross-entropy of the cosines against their own best class, where max softmax(s z) > 0.7
    paper:              entropy of softmax(s z), where max softmax(s z) > 0.7                                        (D21)

It asks nothing of the identifier: whatever the verdict, a confident image is learned from. The study itself has desired images only
and takes identifier `all`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch.nn import functional

from ..backbones.protocol import Backbone
from ..core.checks import between, split
from ..core.memory import named
from ..core.optimisers import Optimiser
from ..core.scores import cosines, entropy, max_softmax_score
from ..core.types import Decision, Error, Look, Outcome
from . import tuning
from .protocol import Facts


@dataclass(frozen=True)
class EntropyOptions:
    """Defaults are those of the public development code, the only code there is.

    loss: "pseudo_label" cross-entropy on raw cosines, or "entropy" of the scaled ones (paper) (D21).
    confidence: the largest softmax probability must exceed it.
    optimiser, lr: "sgd" without momentum, or "adamw" with its defaults.
    group: the parameters that are trained; rank: of "lora".
    answer: with image and classifier as they are "after" the update, or "reference" for the slip of the development code, the
        image's feature from before it and the classifier from after it.
    """

    loss: Literal["pseudo_label", "entropy"] = "pseudo_label"
    confidence: float = 0.7
    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: float = 1e-3
    group: tuning.Group = "layernorm"
    rank: int = 16
    answer: Literal["after", "reference"] = "after"

    def __post_init__(self) -> None:
        if not self.lr > 0 or not 0 <= self.confidence < 1:
            raise Error(f"`lr` is above zero and `confidence` from 0 to below 1, not {self.lr} and {self.confidence}.")
        between(self, rank=tuning.RANKS)


class EntropyState:
    """What is trained, and the optimiser's memory."""

    def __init__(self, overlay: tuning.Tuned, optimiser: Optimiser) -> None:
        self.overlay, self.optimiser = overlay, optimiser

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(overlay=self.overlay.snapshot(), optimiser=self.optimiser.tensors())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, optimiser = split(tensors, "overlay", "optimiser")
        self.optimiser.load(optimiser, self.overlay.parameters())
        self.overlay.load(overlay)


class Entropy(tuning.Training):
    """See the top of this file."""

    name = "entropy"
    Options = EntropyOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "what is trained, the optimiser's moments",
        "1 forward; confident: +1 backward, +1 forward",
        "Wang et al. 2021 (Tent), as in ROSITA's closed-set study",
    )
    views = 1
    score_scale = 1.0
    scores_in_half = False

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: EntropyOptions
    ) -> None:
        self.options = options
        self.scale = backbone.logit_scale
        self._tuned = partial(tuning.Tuned, backbone, classifier, classes, options.group, options.rank)

    def start(self) -> EntropyState:
        return EntropyState(self._tuned(), Optimiser(self.options.optimiser, self.options.lr))

    def propose(self, state: EntropyState, look: Look, decision: Decision) -> tuning.Proposal | Outcome:
        if not max_softmax_score(look.cosines.detach(), self.scale) > self.options.confidence:
            return Outcome(reason="the image is not confident enough to learn from")

        def settle(outcome: Outcome) -> Outcome:
            if outcome.failed or self.options.answer == "after":
                return outcome
            return replace(outcome, answer=partial(self._mixed, state, look))

        return tuning.Proposal(state.optimiser, partial(self._loss, state), settle)

    def _loss(self, state: EntropyState, look: Look, augmented: torch.Tensor) -> torch.Tensor:
        _, z = state.overlay.differentiable(look)
        return entropy(self.scale * z) if self.options.loss == "entropy" else functional.cross_entropy(z, z.argmax())

    @torch.no_grad()
    def _mixed(self, state: EntropyState, look: Look) -> torch.Tensor:
        return cosines(look.features, state.overlay.classifier)
