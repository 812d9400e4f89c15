"""What the methods share that train an overlay: a state, one look under the overlay, one step of an optimiser."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch

from ..core.banks import FeatureMemory, named
from ..core.checks import split
from ..core.optimisers import Optimiser
from ..core.overlay import encode
from ..core.scores import cosines
from ..core.types import Decision, Look, ViewSource
from .protocol import Failure, Gradient, Method, Trained
from .trained_overlay import Tuned

# Numbers in a tensor up to which copying it is quicker than an operation on it alone.
SMALL = 4096
NOT_FINITE = Failure("the loss or its gradient is not finite")
TOO_FAR = Failure("the step would make the parameters not finite")


class TunedState:
    """The overlay as it is now, and the optimiser of the next step."""

    def __init__(self, overlay: Tuned, optimiser: Optimiser) -> None:
        self.overlay, self.optimiser = overlay, optimiser

    def keep(self, trained: Trained | None) -> None:
        """Go on from where a gradient step led to."""
        if trained is not None:
            assert isinstance(trained.optimiser, Optimiser)
            self.overlay, self.optimiser = trained.overlay, trained.optimiser

    def restarted(self, fresh: TunedState) -> TunedState:
        """The start. Banks stay only where the image tower was not trained: then their features are the frozen one's."""
        if self.overlay.trains_vision:
            return fresh
        self.keep(Trained(fresh.overlay, fresh.optimiser, 0.0))
        return self

    def memories(self) -> dict[str, FeatureMemory]:
        return {}

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(overlay=self.overlay.stored(), optimiser=self.optimiser.stored())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, optimiser = split(tensors, "overlay", "optimiser")
        restored = self.overlay.restored(overlay)
        self.optimiser = self.optimiser.restored(optimiser, restored.parameters())
        self.overlay = restored


OfTuned = TypeVar("OfTuned", bound=TunedState)


class Tuning(Generic[OfTuned]):
    """Base of the methods that train an overlay."""

    views = 1
    score_scale = 1.0
    looks_with_graph = True

    def overlay(self, state: OfTuned) -> Tuned:
        return state.overlay

    def look(self, state: OfTuned, features: torch.Tensor, views: ViewSource) -> Look[None]:
        return look(state.overlay, features, views)

    def commit(self, state: OfTuned, look: Look[None], decision: Decision, trained: Trained | None) -> None:
        state.keep(trained)


def look(tuned: Tuned, features: torch.Tensor, views: ViewSource) -> Look[None]:
    """Cosines to the overlay's classifier; `features` carry a graph where the image tower is trained."""
    z = cosines(features, tuned.classifier)
    return Look(views, features, z, z, None)


def take(gradient: Gradient, seen: Look[object]) -> Trained | Failure:
    """Where one step of the optimiser leads to, or why it cannot be taken. Nothing is stored."""
    if gradient.further:
        further = encode(gradient.overlay.vision, gradient.further_images(seen.views), gradient.overlay)
    else:
        further = seen.features[None][:0]
    loss = gradient.loss(seen, further)
    # A loss need not reach all of a group: L_U says nothing about prompts that are trained beside the LayerNorms.
    return led_to(gradient, loss, torch.autograd.grad(loss, gradient.overlay.parameters(), materialize_grads=True))


def led_to(gradient: Gradient, loss: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Trained | Failure:
    """Where one step of the optimiser leads to from its gradients, or why it cannot be taken. Nothing is stored."""
    value = float(loss.detach())
    if not math.isfinite(value) or not _finite(gradients):
        return NOT_FINITE
    values, optimiser = gradient.optimiser.step(gradient.overlay.parameters(), gradients)
    if not _finite(values):
        return TOO_FAR
    return Trained(gradient.overlay.moved(values), optimiser, value)


def answer(
    method: Method[Any, Any, Any],
    state: object,
    seen: Look[Any],
    gradient: Gradient,
    trained: Trained,
    features: torch.Tensor,
) -> torch.Tensor | None:
    """Logits of the image of `seen` after its gradient step, in the units of the method's own logits; changes nothing.

    `features` are the image's under the new values. None if the logits after the step are not known: if the method's logits are not
    the cosines, its state is not a `TunedState`, and the gradient has no `answer`.
    """
    if gradient.answer is not None:
        return gradient.answer(trained.overlay, features)
    if isinstance(state, TunedState):
        after = copy.copy(state)
        after.keep(trained)
        return method.look(after, features, seen.views).logits
    return cosines(features, trained.overlay.classifier) if seen.logits is seen.cosines else None


@torch.no_grad()
def _finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all values are: then so are their norms.

    Small tensors are joined and looked at once, because the call of an operation takes longer than its work on them.
    """
    parts: list[torch.Tensor] = []
    small: list[torch.Tensor] = []
    for tensor in tensors:
        (small if tensor.numel() <= SMALL else parts).append(tensor if tensor.ndim == 1 else tensor.reshape(-1))
    if small:
        parts.append(torch.cat(small))
    return all(math.isfinite(float(torch.linalg.vector_norm(part))) for part in parts)
