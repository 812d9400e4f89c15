"""(K+1)PC: self-training with an additional class for unknown images, based on recent unknown features (after OWTTT).

A desired image is trained towards its class. An undesired image is compared with the classes and with its nearest
stored prototype. Because the image was stored just before, that prototype is the image itself, and the loss only pushes
the image away from the text prototypes (D18).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.nn import functional

from ..config.declare import option
from ..core.banks import FeatureBank
from ..core.checks import stored_count
from ..core.optimisers import StepResult
from ..core.types import Decision, Look, Verdict
from .base import GradientMethod, GradientState, MethodSummary, Proposal
from .groups import Group, GroupOptions, group_option, rank_option

# Training starts when the pool holds more features than this.
ENOUGH = 5
# Name of the stored number of images.
SEEN = "count/seen"


@dataclass(frozen=True)
class PrototypesOptions(GroupOptions):
    """Options of `prototypes`. Defaults are those of the published code except its NaN steps."""

    lr: float = option(1e-3, above=0, about="learning rate of SGD without momentum")
    pool: int = option(64, bounds=(ENOUGH + 1, 1_000_000), about="number of stored features of unknown images")
    store: Literal["all", "reliable"] = option(
        "all",
        paper="reliable",
        number="D18",
        about="unknown images whose features are stored: all, or reliable ones only",
    )
    wait: int = option(
        500, number="D18", bounds=(0, 10**9), about="number of images before the first update; the paper gives none"
    )
    scale: float = option(1.0, number="D18", above=0, about="factor of the cosines in the loss")
    unreliable: Literal["skip", "reference"] = option(
        "skip",
        number="D18",
        about="treatment of known images that are not reliable: no update; `reference` reproduces an "
        "error of the published code",
        bug="a known image that is not reliable takes a step on a NaN loss, which changes no parameter",
    )
    group: Group = group_option(number="D18")
    rank: int = rank_option()

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[Any, ...]]:
        return super().stored_shapes(classes, width) | {"pool/features": (self.pool, width)}


class PrototypesState(GradientState):
    """The trained values, the bank of features of unknown images, and the number of images seen."""

    stores_optimiser = False
    pool: FeatureBank
    seen = 0

    def tensors(self) -> dict[str, torch.Tensor]:
        return super().tensors() | {SEEN: torch.tensor(self.seen)}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        seen = stored_count(tensors, SEEN)
        super().load({name: tensor for name, tensor in tensors.items() if name != SEEN})
        self.seen = seen


class Prototypes(GradientMethod):
    """Self-training on the classes and an additional unknown class, represented by recent unknown features."""

    Options = PrototypesOptions
    summary = MethodSummary(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, 64 features, score bank",
        "1 forward; reliable desired: +1 backward, +1 forward; undesired: +1 backward",
        "Li et al. 2023 (OWTTT), as (K+1)PC",
    )

    options: PrototypesOptions

    def start(self) -> PrototypesState:
        pool = FeatureBank(self.options.pool, self.classifier.shape[1], device=self.classifier.device)
        return PrototypesState(self.initial, self.optimiser(), pool=pool)

    def propose(self, state: PrototypesState, look: Look[None], decision: Decision) -> Proposal:
        in_pool = state.pool.size_with() if self._stores(decision) else len(state.pool)
        if in_pool <= ENOUGH or state.seen <= self.options.wait:
            return Proposal(reason="(K+1)PC is still waiting for enough images")
        if decision.verdict is Verdict.UNRELIABLE_DESIRED:
            if self.options.unreliable == "reference":
                return Proposal(loss=float("nan"), adapted=True)
            return Proposal(reason="the score is not reliable")
        return self.step(state, partial(self._loss, state, decision))

    def commit(self, state: PrototypesState, look: Look[None], decision: Decision, trained: StepResult | None) -> None:
        super().commit(state, look, decision, trained)
        state.seen += 1
        if self._stores(decision):
            state.pool.push(look.features)

    def _stores(self, decision: Decision) -> bool:
        """Return whether the image enters the bank."""
        return decision.verdict is Verdict.RELIABLE_UNDESIRED or (self.options.store == "all" and not decision.desired)

    def _loss(
        self, state: PrototypesState, decision: Decision, look: Look[None], augmented: torch.Tensor
    ) -> torch.Tensor:
        _, logits = state.overlay.differentiable(look)
        if not decision.desired:
            similar = state.pool.similarities(look.features)
            if self._stores(decision):  # the loss includes the image, which `commit` stores later
                itself = torch.arange(len(similar), device=similar.device) == state.pool.place()
                similar = torch.where(itself, look.features.detach() @ look.features, similar)
            logits = torch.cat([logits, similar.max()[None]])
        return functional.cross_entropy(self.options.scale * logits, logits.argmax())
