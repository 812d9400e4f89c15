"""The closed-set study: lower the entropy of confident images, with any group of parameters (paper section 3, appendix).

    published earlier:  cross-entropy of the cosines against their own best class, where max softmax(s z) > 0.7
    paper:              entropy of softmax(s z), where max softmax(s z) > 0.7                                        (D21)

It asks nothing of the identifier: whatever the verdict, a confident image is learned from. The study itself has desired images only
and takes identifier `all`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from ..backbones.protocol import Backbone
from ..config.declare import Options, option
from ..core.optimisers import Optimiser
from ..core.scores import entropy, max_softmax_score
from ..core.types import Decision, Look
from .protocol import Facts, Gradient, Proposal
from .trained_overlay import Group, Tuned, group_option, rank_option
from .tuning import TunedState, Tuning


@dataclass(frozen=True)
class EntropyOptions(Options):
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


class Entropy(Tuning[TunedState]):
    """Learns from every confident image, whatever its verdict."""

    name = "entropy"
    Options = EntropyOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "what is trained, the optimiser's moments",
        "1 forward; confident: +1 backward, +1 forward",
        "Wang et al. 2021 (Tent), as in ROSITA's closed-set study",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: EntropyOptions
    ) -> None:
        self.options = options
        self.scale = backbone.logit_scale
        self._initial = Tuned(backbone, classifier, classes, options.group, options.rank)

    def start(self) -> TunedState:
        return TunedState(self._initial, Optimiser(self.options.optimiser, self.options.lr))

    def propose(self, state: TunedState, look: Look[None], decision: Decision) -> Proposal:
        if not max_softmax_score(look.cosines.detach(), self.scale) > self.options.confidence:
            return Proposal(reason="the image is not confident enough to learn from")

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            _, z = state.overlay.differentiable(look)
            if self.options.loss == "entropy":
                return entropy(self.scale * z)
            return functional.cross_entropy(z, z.argmax())

        looks_again = self.options.named_from == "after" and state.overlay.trains_vision
        return Proposal(Gradient(state.overlay, state.optimiser, loss, looks_again=looks_again))
