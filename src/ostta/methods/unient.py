"""UniEnt with the identifier's decision in place of a filter: lower the entropy of known images, raise that of unknown ones.

Published in the benchmark without the marginal-entropy term and on raw cosines, where the softmax over classes is nearly flat and
its gradient nearly zero; that is why its rows there equal the frozen classifier's (D19). `scale` gives it the temperature back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..config.declare import option
from ..core.scores import entropy
from ..core.types import Decision, Look
from .base import Facts, Proposal, Tuned, TunedState
from .trained_overlay import Group, GroupOptions, group_option, rank_option


@dataclass(frozen=True)
class UniEntOptions(GroupOptions):
    """Defaults are the published code's."""

    lr: float = option(1e-3, above=0, about="rate of plain SGD")
    scale: float = option(1.0, number="D19", above=0, about="factor on the cosines inside the entropy")
    undesired_weight: float = option(
        1.0, number="D19", at_least=0, about="factor on the entropy of undesired images, which is raised"
    )
    group: Group = group_option()
    rank: int = rank_option()


class UniEntState(TunedState):
    """The trained values."""

    stores_optimiser = False


class UniEnt(Tuned):
    """Learn from every image: lower the entropy of known ones and raise that of unknown ones."""

    Options = UniEntOptions
    facts = Facts(
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
