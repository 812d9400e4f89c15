"""The frozen classifier: the row that every table starts with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..backbones.protocol import Backbone
from ..core.checks import require_names
from ..core.scores import cosines, unit
from ..core.types import Decision, Look, Outcome, ViewSource
from .protocol import Facts


@dataclass(frozen=True)
class ZeroShotOptions:
    """Nothing to choose."""


class NoState:
    """Nothing to remember."""

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ())


class ZeroShot:
    """One look, no memory but the identifier's."""

    name = "zero_shot"
    Options = ZeroShotOptions
    facts = Facts("nothing", "score bank", "1 forward", "Radford et al. 2021 (CLIP)")
    views = 1
    scores_in_half = True
    score_scale = 1.0

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: ZeroShotOptions
    ) -> None:
        self.vision = backbone.vision
        self.classifier = classifier

    def start(self) -> NoState:
        return NoState()

    def overlay(self, state: NoState) -> None:
        return None

    @torch.no_grad()
    def look(self, state: NoState, views: ViewSource, features: torch.Tensor | None = None) -> Look:
        if features is None:
            features = unit(self.vision(views.canonical))[0]
        z = cosines(features, self.classifier)
        return Look(views, features, z, z)

    def learn(self, state: NoState, look: Look, decision: Decision) -> Outcome:
        return Outcome(reason="zero_shot never adapts")
