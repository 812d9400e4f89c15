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
from ..core.checks import between
from ..core.optimisers import Optimiser
from ..core.scores import entropy, max_softmax_score
from ..core.types import Decision, Error, Look
from .protocol import Facts, Gradient, Proposal
from .trained_overlay import RANKS, Group, Tuned
from .tuning import TunedState, Tuning


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
    group: Group = "layernorm"
    rank: int = 16
    answer: Literal["after", "reference"] = "after"

    def __post_init__(self) -> None:
        if not self.lr > 0 or not 0 <= self.confidence < 1:
            raise Error(f"`lr` is above zero and `confidence` from 0 to below 1, not {self.lr} and {self.confidence}.")
        between(self, rank=RANKS)


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

        looks_again = self.options.answer == "after" and state.overlay.trains_vision
        return Proposal(Gradient(state.overlay, state.optimiser, loss, looks_again=looks_again))
