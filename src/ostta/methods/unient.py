"""UniEnt with the identifier's decision in place of a filter: lower the entropy of known images, raise that of unknown ones.

Published in the benchmark without the marginal-entropy term and on raw cosines, where the softmax over classes is nearly flat and
its gradient nearly zero; that is why its rows there equal the frozen classifier's (D19). `scale` gives it the temperature back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ..backbones.protocol import Backbone
from ..core.checks import between, split
from ..core.memory import named
from ..core.optimisers import Optimiser
from ..core.scores import entropy
from ..core.types import Decision, Error, Look
from . import tuning
from .protocol import Facts


@dataclass(frozen=True)
class UniEntOptions:
    """Defaults are the published code's.

    lr: rate of plain SGD.
    scale: factor on the cosines inside the entropy (D19).
    undesired_weight: factor on the entropy of undesired images, which is raised (D19).
    group: the parameters that are trained; rank: of "lora".
    """

    lr: float = 1e-3
    scale: float = 1.0
    undesired_weight: float = 1.0
    group: tuning.Group = "layernorm"
    rank: int = 16

    def __post_init__(self) -> None:
        if not self.lr > 0 or not self.scale > 0 or self.undesired_weight < 0:
            raise Error(f"`lr` and `scale` are above zero and `undesired_weight` is not below it, unlike {self}.")
        between(self, rank=tuning.RANKS)


class UniEntState:
    """What is trained."""

    def __init__(self, overlay: tuning.Tuned) -> None:
        self.overlay = overlay

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(overlay=self.overlay.snapshot())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        (overlay,) = split(tensors, "overlay")
        self.overlay.load(overlay)


class UniEnt(tuning.Training):
    """See the top of this file."""

    name = "unient"
    Options = UniEntOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, score bank",
        "1 forward, 1 backward; desired: +1 forward",
        "Gao et al. 2024 (UniEnt)",
    )
    views = 1
    score_scale = 1.0
    scores_in_half = False

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: UniEntOptions
    ) -> None:
        self.options = options
        self.optimiser = Optimiser("sgd", options.lr)
        self._tuned = partial(tuning.Tuned, backbone, classifier, classes, options.group, options.rank)

    def start(self) -> UniEntState:
        return UniEntState(self._tuned())

    def propose(self, state: UniEntState, look: Look, decision: Decision) -> tuning.Proposal:
        sign = 1.0 if decision.desired else -self.options.undesired_weight

        def loss(look: Look, augmented: torch.Tensor) -> torch.Tensor:
            _, z = state.overlay.differentiable(look)
            return sign * entropy(self.options.scale * z)

        return tuning.Proposal(self.optimiser, loss, settle=lambda outcome: outcome)
