"""UniEnt with the identifier's decision in place of a filter: lower the entropy of known images, raise that of unknown ones.

Published in the benchmark without the marginal-entropy term and on raw cosines, where the softmax over classes is nearly flat and
its gradient nearly zero; that is why its rows there equal the frozen classifier's (D19). `scale` gives it the temperature back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options, option
from ..core.banks import named
from ..core.checks import split
from ..core.optimisers import Optimiser
from ..core.scores import entropy
from ..core.types import Decision, Look
from .protocol import Facts, Gradient, Proposal
from .trained_overlay import Group, Tuned, group_option, rank_option
from .tuning import TunedState, Tuning


@dataclass(frozen=True)
class UniEntOptions(Options):
    """Defaults are the published code's."""

    lr: float = option(1e-3, above=0, about="rate of plain SGD")
    scale: float = option(1.0, number="D19", above=0, about="factor on the cosines inside the entropy")
    undesired_weight: float = option(
        1.0, number="D19", at_least=0, about="factor on the entropy of undesired images, which is raised"
    )
    group: Group = group_option()
    rank: int = rank_option()


class UniEntState(TunedState):
    """What is trained. Plain SGD has nothing to remember."""

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(overlay=self.overlay.stored())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        (overlay,) = split(tensors, "overlay")
        self.overlay = self.overlay.restored(overlay)


class UniEnt(Tuning[UniEntState]):
    """Learns from every image: the entropy of known ones is lowered, that of unknown ones raised."""

    name = "unient"
    Options = UniEntOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, score bank",
        "1 forward, 1 backward; desired: +1 forward",
        "Gao et al. 2024 (UniEnt)",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: UniEntOptions
    ) -> None:
        self.options = options
        self._initial = Tuned(backbone, classifier, classes, options.group, options.rank)

    def start(self) -> UniEntState:
        return UniEntState(self._initial, Optimiser("sgd", self.options.lr))

    def propose(self, state: UniEntState, look: Look[None], decision: Decision) -> Proposal:
        sign = 1.0 if decision.desired else -self.options.undesired_weight

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            _, z = state.overlay.differentiable(look)
            return sign * entropy(self.options.scale * z)

        return Proposal(Gradient(state.overlay, state.optimiser, loss, looks_again=state.overlay.trains_vision))
