"""UniEnt with the identifier's decision in place of a filter: lower the entropy of known images, raise that of unknown ones.

Published in the benchmark without the marginal-entropy term and on raw cosines, where the softmax over classes is nearly flat and
its gradient nearly zero; that is why its rows there equal the frozen classifier's (D19). `scale` gives it the temperature back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..backbones.protocol import Backbone
from ..core.memory import named, parts
from ..core.overlay import Overlay, layernorm_names
from ..core.scores import entropy
from ..core.types import Decision, Error, Look, Outcome, ViewSource
from . import tuning
from .protocol import Facts


@dataclass(frozen=True)
class UniEntOptions:
    """Defaults are the published code's.

    lr: rate of plain SGD.
    scale: factor on the cosines inside the entropy (D19).
    undesired_weight: factor on the entropy of undesired images, which is raised (D19).
    """

    lr: float = 1e-3
    scale: float = 1.0
    undesired_weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.lr > 0 or not self.scale > 0 or self.undesired_weight < 0:
            raise Error(f"`lr` and `scale` are above zero and `undesired_weight` is not below it, unlike {self}.")


class UniEntState:
    """The adapted LayerNorms."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(overlay=self.overlay.snapshot())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.overlay.load(parts(tensors, "overlay/"))


class UniEnt:
    """See the top of this file."""

    name = "unient"
    Options = UniEntOptions
    facts = Facts(
        "LayerNorms of the image tower",
        "LayerNorms, score bank",
        "1 forward, 1 backward; desired: +1 forward",
        "Gao et al. 2024 (UniEnt)",
    )
    views = 1
    score_scale = 1.0

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: UniEntOptions
    ) -> None:
        self.options = options
        self.vision = backbone.vision
        self.classifier = classifier

    def start(self) -> UniEntState:
        return UniEntState(Overlay(self.vision, layernorm_names(self.vision)))

    def look(self, state: UniEntState, views: ViewSource) -> Look:
        return tuning.look(state.overlay, self.classifier, views)

    def learn(self, state: UniEntState, look: Look, decision: Decision) -> Outcome:
        sign = 1.0 if decision.desired else -self.options.undesired_weight
        loss = sign * entropy(self.options.scale * look.logits)
        return tuning.step(state.overlay, self.classifier, look, loss, self.options.lr)
