"""The closed-set study: lower the entropy of confident images, with any group of parameters (paper section 3, appendix).

    published earlier:  cross-entropy of the cosines against their own best class, where max softmax(s z) > 0.7
    paper:              entropy of softmax(s z), where max softmax(s z) > 0.7                                        (D21)

The method does not depend on the identifier: it learns from every confident image. The study itself has known images only and uses the
identifier `all`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from ..config.declare import option
from ..core.optimisers import Optimiser
from ..core.scores import entropy, max_softmax_score
from ..core.types import Decision, Look
from .base import Facts, Proposal, Tuned, TunedState
from .trained_overlay import Group, GroupOptions, group_option, rank_option


@dataclass(frozen=True)
class EntropyOptions(GroupOptions):
    """Defaults are those of the public development code, the only code there is."""

    loss: Literal["pseudo_label", "entropy"] = option(
        "pseudo_label", paper="entropy", number="D21", about="what a confident image is trained on"
    )
    confidence: float = option(0.7, at_least=0, below=1, about="the largest softmax probability must exceed it")
    optimiser: Literal["sgd", "adamw"] = option("sgd", about="SGD without momentum, or AdamW with its defaults")
    lr: float = option(1e-3, above=0, about="rate of the optimiser")
    group: Group = group_option()
    rank: int = rank_option()
    named_from: Literal["after", "reference"] = option(
        "after",
        number="D21",
        about="what the class is named from after the update; `reference` is the development code's slip",
        bug="the class is named from the image's feature before the update and the classifier after it",
    )


class Entropy(Tuned):
    """Learn from every confident image, regardless of its verdict."""

    Options = EntropyOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "what is trained, the optimiser's moments",
        "1 forward; confident: +1 backward, +1 forward",
        "Wang et al. 2021 (Tent), as in ROSITA's closed-set study",
    )

    options: EntropyOptions

    def optimiser(self) -> Optimiser:
        return Optimiser(self.options.optimiser, self.options.lr)

    def propose(self, state: TunedState, look: Look[None], decision: Decision) -> Proposal:
        if not max_softmax_score(look.cosines.detach(), self.logit_scale) > self.options.confidence:
            return Proposal(reason="the image is not confident enough to learn from")

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            _, z = state.overlay.differentiable(look)
            if self.options.loss == "entropy":
                return entropy(self.logit_scale * z)
            return functional.cross_entropy(z, z.argmax())

        return self.step(state, loss, looks_again=self.options.named_from == "after")
