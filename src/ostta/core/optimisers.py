"""One gradient step on the loss of one image.

Every step of every method and of the stream pool goes through this module.

Neither an optimiser nor an overlay changes: a step returns new values and the optimiser of the next step, and the
caller stores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch.optim.adamw import adamw

from .checks import require_names, stored, stored_count
from .overlay import TrainedOverlay, encode
from .types import Error, Look, ViewSource

# Defaults of AdamW in PyTorch, which the published code uses. Without decay it is Adam.
EPS, WEIGHT_DECAY, BETAS = 1e-8, 0.01, (0.9, 0.999)
# Tensors with at most this many values are joined before they are checked: copying them is faster than an operation on
# each.
SMALL = 4096


# --- optimisers -------------------------------------------------------------------------------------------------------
class Stepper(Protocol):
    """An optimiser: `step` returns the values after one step along `gradients`, and the optimiser of the next step."""

    def step(
        self, values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], Stepper]: ...


@dataclass(frozen=True)
class Optimiser:
    """SGD with or without momentum, or AdamW. `eps` and `decay` are options of AdamW; without decay it is Adam.

    first, second:  velocity of each parameter under SGD, or its two moments under AdamW; empty before the first step.
    """

    kind: Literal["sgd", "adamw"]
    lr: float
    momentum: float = 0.0
    steps: int = 0
    first: tuple[torch.Tensor, ...] = ()
    second: tuple[torch.Tensor, ...] = ()
    eps: float = EPS
    decay: float = WEIGHT_DECAY

    @torch.no_grad()
    def step(
        self, values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], Optimiser]:
        along = list(gradients)
        if self.kind == "sgd" and not self.momentum:
            return list(torch._foreach_add(list(values), along, alpha=-self.lr)), self
        first = [moment.clone() for moment in self.first] or [torch.zeros_like(gradient) for gradient in along]
        if self.kind == "sgd":
            torch._foreach_mul_(first, self.momentum)
            torch._foreach_add_(first, along)
            moved = list(torch._foreach_add(list(values), first, alpha=-self.lr))
            return moved, replace(self, steps=self.steps + 1, first=tuple(first))
        second = [moment.clone() for moment in self.second] or [torch.zeros_like(gradient) for gradient in along]
        moved = [value.detach().clone() for value in values]
        adamw(
            moved, along, first, second, [], [torch.tensor(float(self.steps)) for _ in along],
            foreach=True, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], lr=self.lr, weight_decay=self.decay,
            eps=self.eps, maximize=False,
        )  # fmt: skip
        return moved, replace(self, steps=self.steps + 1, first=tuple(first), second=tuple(second))

    def stored(self) -> dict[str, torch.Tensor]:
        """Return the number of steps and the moments by name, for a state file."""
        memory = {f"first.{i}": tensor for i, tensor in enumerate(self.first)}
        memory |= {f"second.{i}": tensor for i, tensor in enumerate(self.second)}
        return {"steps": torch.tensor(self.steps), **memory}

    def restored(self, tensors: Mapping[str, torch.Tensor], parameters: Sequence[torch.Tensor]) -> Optimiser:
        """Return the optimiser of `parameters` that `stored` described; raise an Error if it does not fit."""
        steps = stored_count(tensors, "steps")
        moments = ("first", "second") if self.kind == "adamw" else ("first",) if self.momentum else ()
        if steps and not moments:
            raise Error(
                f"The stored optimiser has taken {steps} steps, and plain SGD counts none.", code="state-mismatch"
            )
        numbered = list(enumerate(parameters)) if steps else []
        require_names(tensors, ("steps", *(f"{name}.{i}" for name in moments for i, _ in numbered)))

        def moment(name: str, low: float) -> tuple[torch.Tensor, ...]:
            return tuple(
                stored(tensors, f"{name}.{i}", torch.float32, parameter.shape, low).to(parameter.device, copy=True)
                for i, parameter in numbered
                if name in moments
            )

        return replace(self, steps=steps, first=moment("first", -math.inf), second=moment("second", 0.0))


@dataclass(frozen=True)
class FirstAdamW:
    """AdamW for a single step, in closed form: the moments of the first step are the gradient itself."""

    lr: float

    @torch.no_grad()
    def step(
        self, values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], FirstAdamW]:
        decay = 1 - self.lr * WEIGHT_DECAY
        return [v * decay - self.lr * g / (g.abs() + EPS) for v, g in zip(values, gradients, strict=True)], self


# --- one step ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ProposedStep:
    """A proposed gradient step: the values that move, the optimiser and the loss.

    loss:         a function of the look at the image, with graph, and of the unit features [N, D] of further images,
                  with graph: `augmented` more views of the image, followed by `pixels` [.., 3, H, W].
    looks_again:  whether the answer needs the features of the image under the new values.
    """

    overlay: TrainedOverlay
    optimiser: Stepper
    loss: Callable[[Look[Any], torch.Tensor], torch.Tensor]
    augmented: int = 0
    looks_again: bool = True
    pixels: torch.Tensor | None = None

    @property
    def further(self) -> int:
        """Number of images that are encoded in addition to the canonical view."""
        return self.augmented + (0 if self.pixels is None else len(self.pixels))

    def further_images(self, views: ViewSource) -> torch.Tensor:
        """Return these images [further, 3, H, W]; there must be at least one."""
        parts = [views.augmented(self.augmented)] if self.augmented else []
        parts += [] if self.pixels is None else [self.pixels]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a gradient step: new values, the optimiser of the next step, and the loss."""

    overlay: TrainedOverlay
    optimiser: Stepper
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class DiscardedStep:
    """The reason why a gradient step is discarded. Nothing of the image is remembered then."""

    reason: str


NOT_FINITE = DiscardedStep("the loss or its gradient is not finite")
TOO_FAR = DiscardedStep("the step would make the parameters not finite")


def gradient_step(gradient: ProposedStep, look: Look[Any]) -> StepResult | DiscardedStep:
    """Compute the loss, its gradient and one step of the optimiser. Nothing is stored."""
    if gradient.further:
        further = encode(gradient.overlay.vision, gradient.further_images(look.views), gradient.overlay)
    else:
        further = look.features[None][:0]
    loss = gradient.loss(look, further)
    # A loss need not depend on all values: L_U does not depend on prompts that are trained together with the
    # LayerNorms.
    return optimiser_step(
        gradient, loss, torch.autograd.grad(loss, gradient.overlay.parameters(), materialize_grads=True)
    )


def optimiser_step(
    gradient: ProposedStep, loss: torch.Tensor, gradients: Sequence[torch.Tensor]
) -> StepResult | DiscardedStep:
    """Compute one step of the optimiser from gradients that are known. Nothing is stored."""
    value = float(loss.detach())
    if not math.isfinite(value) or not _finite(gradients):
        return NOT_FINITE
    values, optimiser = gradient.optimiser.step(gradient.overlay.parameters(), gradients)
    if not _finite(values):
        return TOO_FAR
    return StepResult(gradient.overlay.moved(values), optimiser, value)


@torch.no_grad()
def _finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether all values are finite, by the norms of the tensors."""
    parts: list[torch.Tensor] = []
    small: list[torch.Tensor] = []
    for tensor in tensors:
        (small if tensor.numel() <= SMALL else parts).append(tensor if tensor.ndim == 1 else tensor.reshape(-1))
    if small:
        parts.append(torch.cat(small))
    return all(math.isfinite(float(torch.linalg.vector_norm(part))) for part in parts)
