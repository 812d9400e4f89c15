"""(K+1)PC: self-training with one more class for the unknown, made of recent unknown features (after OWTTT).

A desired image is trained towards its own class. An undesired one competes between the classes and its nearest stored prototype;
as it was stored just before, that nearest one is itself, and what remains is a push away from the text prototypes (D18).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch.nn import functional

from ..config.declare import option
from ..core.banks import FeatureBank, FeatureMemory, named
from ..core.checks import require_names, split, stored_count
from ..core.optimisers import Optimiser
from ..core.types import Decision, Look, Verdict
from .base import Facts, Proposal, Tuned, TunedState
from .gradient import Trained
from .trained_overlay import Group, GroupOptions, TrainedOverlay, group_option, rank_option

# The pool must hold more features than this before anything is trained.
ENOUGH = 5


@dataclass(frozen=True)
class PrototypesOptions(GroupOptions):
    """Defaults are the published code's, save for its NaN steps."""

    lr: float = option(1e-3, above=0, about="rate of plain SGD")
    pool: int = option(64, bounds=(ENOUGH + 1, 1_000_000), about="features of undesired images that are kept")
    store: Literal["all", "reliable"] = option(
        "all", paper="reliable", number="D18", about="which undesired images enter the pool"
    )
    wait: int = option(
        500, number="D18", bounds=(0, 10**9), about="images before the first update; the paper names none"
    )
    scale: float = option(1.0, number="D18", above=0, about="factor on the cosines inside the loss")
    unreliable: Literal["skip", "reference"] = option(
        "skip",
        number="D18",
        about="what a desired image that is not reliable does; `reference` is the published slip",
        bug="a desired image that is not reliable takes a step on a loss of NaN, which moves nothing",
    )
    group: Group = group_option(number="D18")
    rank: int = rank_option()

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        return {"pool/features": (self.pool, width)}


class PrototypesState(TunedState):
    """The trained values, the bank of features of unknown images, and the number of images seen."""

    stores_optimiser = False

    def __init__(self, overlay: TrainedOverlay, optimiser: Optimiser, pool: FeatureBank) -> None:
        super().__init__(overlay, optimiser)
        self.pool = pool
        self.seen = 0

    def memories(self) -> dict[str, FeatureMemory]:
        return {"pool": self.pool}

    def tensors(self) -> dict[str, torch.Tensor]:
        count = {"seen": torch.tensor(self.seen)}
        return super().tensors() | named(pool=self.pool.tensors(), count=count)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, pool, count = split(tensors, "overlay", "pool", "count")
        require_names(count, ("seen",))
        self.pool.load(pool)
        super().load(named(overlay=overlay))
        self.seen = stored_count(count, "seen")


class Prototypes(Tuned):
    """Self-training on the classes and one more, the unknown, which the bank of recent unknown features stands for."""

    Options = PrototypesOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, 64 features, score bank",
        "1 forward; reliable desired: +1 backward, +1 forward; undesired: +1 backward",
        "Li et al. 2023 (OWTTT), as (K+1)PC",
    )

    options: PrototypesOptions

    def start(self) -> PrototypesState:
        pool = FeatureBank(self.options.pool, self.classifier.shape[1], device=self.classifier.device)
        return PrototypesState(self.initial, self.optimiser(), pool)

    def propose(self, state: PrototypesState, look: Look[None], decision: Decision) -> Proposal:
        in_pool = state.pool.size_with() if self._stores(decision) else len(state.pool)
        if in_pool <= ENOUGH or state.seen <= self.options.wait:
            return Proposal(reason="(K+1)PC is still waiting for enough images")
        if decision.verdict is Verdict.UNRELIABLE_DESIRED:
            if self.options.unreliable == "reference":
                return Proposal(loss=float("nan"), adapted=True)
            return Proposal(reason="the score is not reliable")
        return self.step(state, partial(self._loss, state, decision))

    def commit(self, state: PrototypesState, look: Look[None], decision: Decision, trained: Trained | None) -> None:
        super().commit(state, look, decision, trained)
        state.seen += 1
        if self._stores(decision):
            state.pool.push(look.features)

    def _stores(self, decision: Decision) -> bool:
        """Whether the image enters the bank."""
        return decision.verdict is Verdict.RELIABLE_UNDESIRED or (self.options.store == "all" and not decision.desired)

    def _loss(
        self, state: PrototypesState, decision: Decision, look: Look[None], augmented: torch.Tensor
    ) -> torch.Tensor:
        _, logits = state.overlay.differentiable(look)
        if not decision.desired:
            similar = state.pool.similarities(look.features)
            if self._stores(decision):  # the image counts as stored, which it is not yet
                itself = torch.arange(len(similar), device=similar.device) == state.pool.place()
                similar = torch.where(itself, look.features.detach() @ look.features, similar)
            logits = torch.cat([logits, similar.max()[None]])
        return functional.cross_entropy(self.options.scale * logits, logits.argmax())
