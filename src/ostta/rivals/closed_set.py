"""Shared parts of methods from closed-set benchmarks on an open-set stream (OGA, OnZeta).

These methods assume that every image shows one of the classes. On an open-set stream the verdict of the identifier
decides which images they learn from. They define no score, so the score is the largest cosine unless
`score_of="probability"` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..config.declare import Options, option
from ..core.types import Decision, Look, Verdict
from ..methods import FrozenMethod, Proposal


@dataclass(frozen=True)
class ClosedSetOptions(Options):
    """Options that select the images to learn from and the source of the score."""

    learn_from: Literal["known", "reliable", "all"] = option(
        "known",
        about="images that update the state: those classified as known, reliable ones only, or all as published",
    )
    score_of: Literal["cosine", "probability"] = option(
        "cosine", about="values whose maximum is the score: the cosines, or the method's class probabilities"
    )

    def learns(self, decision: Decision) -> bool:
        """Return whether an image with this decision updates the state."""
        if self.learn_from == "reliable":
            return decision.verdict is Verdict.RELIABLE_DESIRED
        return self.learn_from == "all" or decision.desired

    def scores(self, cosines: torch.Tensor, log_probabilities: torch.Tensor) -> torch.Tensor:
        """Return the values whose maximum is the score `max`."""
        return cosines if self.score_of == "cosine" else log_probabilities.exp()


class ClosedSet(FrozenMethod):
    """A method on frozen features that takes no gradient step. Its logits are log-probabilities."""

    options: ClosedSetOptions

    def propose(self, state: Any, look: Look[Any], decision: Decision) -> Proposal:
        if self.options.learns(decision):
            return Proposal(adapted=True)
        return Proposal(reason=f"{type(self).__name__.lower()} does not learn from an image with this verdict")
