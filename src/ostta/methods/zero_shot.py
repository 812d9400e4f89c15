"""The frozen classifier, the baseline of all tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config.declare import Options
from ..core.types import Decision, Look
from .base import FrozenMethod, MethodSummary, Proposal


@dataclass(frozen=True)
class ZeroShotOptions(Options):
    """`zero_shot` has no options."""


class ZeroShot(FrozenMethod):
    """Predict the class with the largest cosine, without a memory."""

    Options = ZeroShotOptions
    summary = MethodSummary("nothing", "score bank", "1 forward", "Radford et al. 2021 (CLIP)")
    looks_in_half = True

    def propose(self, state: Any, look: Look[Any], decision: Decision) -> Proposal:
        return Proposal(reason="zero_shot trains no parameters")
