"""UniEnt with the identifier as filter: lower the entropy of known images and raise that of unknown images.

The benchmark uses it without the marginal-entropy term and on raw cosines, for which the softmax over classes is nearly
flat and its gradient nearly zero. Its results there therefore equal those of the frozen classifier (D19). The option
`scale` restores the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..config.declare import option
from ..core.losses import entropy
from ..core.types import Decision, Look
from .base import GradientMethod, GradientState, MethodSummary, Proposal
from .groups import Group, GroupOptions, group_option, rank_option


@dataclass(frozen=True)
class UniEntOptions(GroupOptions):
    """Options of `unient`. Defaults are those of the published code."""

    lr: float = option(1e-3, above=0, about="learning rate of SGD without momentum")
    scale: float = option(1.0, number="D19", above=0, about="factor of the cosines in the entropy")
    undesired_weight: float = option(
        1.0, number="D19", at_least=0, about="weight of the entropy of unknown images, which is maximised"
    )
    group: Group = group_option()
    rank: int = rank_option()


class UniEntState(GradientState):
    """The trained values."""

    stores_optimiser = False


class UniEnt(GradientMethod):
    """Learn from every image: lower the entropy of known images and raise that of unknown images."""

    Options = UniEntOptions
    summary = MethodSummary(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, score bank",
        "1 forward, 1 backward; desired: +1 forward",
        "Gao et al. 2024 (UniEnt)",
    )

    options: UniEntOptions

    def start(self) -> UniEntState:
        return UniEntState(self.initial, self.optimiser())

    def propose(self, state: UniEntState, look: Look[None], decision: Decision) -> Proposal:
        sign = 1.0 if decision.desired else -self.options.undesired_weight

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            _, z = state.overlay.differentiable(look)
            return sign * entropy(self.options.scale * z)

        return self.step(state, loss)
