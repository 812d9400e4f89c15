"""Entropy minimisation on confident images, with any group of parameters (closed-set study, section 3 and appendix).

    development code:  cross-entropy of the cosines against their own best class, if max softmax(s z) > 0.7
    paper:             entropy of softmax(s z), if max softmax(s z) > 0.7
                       (D21)

The method does not depend on the identifier: it learns from every confident image. The study has only known images and
uses the identifier `all`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from ..config.declare import option
from ..core.losses import entropy, max_softmax_score
from ..core.optimisers import Optimiser
from ..core.types import Decision, Look
from .base import GradientMethod, GradientState, MethodSummary, Proposal
from .groups import Group, GroupOptions, group_option, rank_option


@dataclass(frozen=True)
class EntropyOptions(GroupOptions):
    """Options of `entropy`. Defaults are those of the public development code, the only published code."""

    loss: Literal["pseudo_label", "entropy"] = option(
        "pseudo_label",
        paper="entropy",
        number="D21",
        about="loss of a confident image: cross-entropy with its pseudo-label, or entropy",
    )
    confidence: float = option(
        0.7,
        at_least=0,
        below=1,
        about="threshold on the largest softmax probability, above which an image is trained on",
    )
    optimiser: Literal["sgd", "adamw"] = option(
        "sgd", about="optimiser: SGD without momentum, or AdamW with its default settings"
    )
    lr: float = option(1e-3, above=0, about="learning rate of the optimiser")
    group: Group = group_option()
    rank: int = rank_option()
    named_from: Literal["after", "reference"] = option(
        "after",
        number="D21",
        about="image feature from which the class is predicted after an update: the feature after the "
        "update; `reference` reproduces an error of the development code",
        bug="the class is predicted from the image feature before the update and the classifier after it",
    )


class Entropy(GradientMethod):
    """Learn from every confident image, regardless of its verdict."""

    Options = EntropyOptions
    summary = MethodSummary(
        "LayerNorms of the image tower, or another group",
        "what is trained, the optimiser's moments",
        "1 forward; confident: +1 backward, +1 forward",
        "Wang et al. 2021 (Tent), as in ROSITA's closed-set study",
    )

    options: EntropyOptions

    def optimiser(self) -> Optimiser:
        return Optimiser(self.options.optimiser, self.options.lr)

    def propose(self, state: GradientState, look: Look[None], decision: Decision) -> Proposal:
        if not max_softmax_score(look.cosines.detach(), self.logit_scale) > self.options.confidence:
            return Proposal(reason="the image is not confident enough to learn from")

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            _, z = state.overlay.differentiable(look)
            if self.options.loss == "entropy":
                return entropy(self.logit_scale * z)
            return functional.cross_entropy(z, z.argmax())

        return self.step(state, loss, looks_again=self.options.named_from == "after")
