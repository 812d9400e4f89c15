"""The frozen classifier: the row that every table starts with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options
from ..core.banks import FeatureMemory
from ..core.checks import require_names
from ..core.scores import cosines
from ..core.types import Decision, Look, ViewSource
from .protocol import Facts, Proposal, Trained


@dataclass(frozen=True)
class ZeroShotOptions(Options):
    """`zero_shot` has no options."""


class NoState:
    """`zero_shot` remembers nothing."""

    def memories(self) -> dict[str, FeatureMemory]:
        return {}

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
    score_scale = 1.0
    looks_with_graph = False

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: ZeroShotOptions
    ) -> None:
        self.classifier = classifier

    def start(self) -> NoState:
        return NoState()

    def overlay(self, state: NoState) -> None:
        return None

    def look(self, state: NoState, features: torch.Tensor, views: ViewSource) -> Look[None]:
        z = cosines(features, self.classifier)
        return Look(views, features, z, z, None)

    def propose(self, state: NoState, look: Look[None], decision: Decision) -> Proposal:
        return Proposal(reason="zero_shot trains no parameters")

    def commit(self, state: NoState, look: Look[None], decision: Decision, trained: Trained | None) -> None:
        """There is nothing to store."""
