"""How values move along their gradients, and what an optimiser remembers between steps.

An optimiser never changes: `step` gives the next values and the optimiser of the next step, and whoever asked decides whether to
keep them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch.optim.adamw import adamw

from .checks import require_names, stored, stored_count
from .types import Error

# Of AdamW, at PyTorch's defaults, as the published code leaves them. Without decay it is Adam.
EPS, WEIGHT_DECAY, BETAS = 1e-8, 0.01, (0.9, 0.999)


class Stepper(Protocol):
    """What takes one step."""

    def step(
        self, values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], Stepper]:
        """The values one step along `gradients`, and what takes the step after that."""


@dataclass(frozen=True)
class Optimiser:
    """SGD, with momentum or without, or AdamW; `eps` and `decay` are AdamW's, and with a decay of 0 it is Adam.

    first, second: of each parameter its velocity under SGD, or its two moments under AdamW; empty before the first step.
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
        """What it remembers by name, for a state file."""
        memory = {f"first.{i}": tensor for i, tensor in enumerate(self.first)}
        memory |= {f"second.{i}": tensor for i, tensor in enumerate(self.second)}
        return {"steps": torch.tensor(self.steps), **memory}

    def restored(self, tensors: Mapping[str, torch.Tensor], parameters: Sequence[torch.Tensor]) -> Optimiser:
        """The optimiser of `parameters` that `stored` gave; refused where it cannot be one like this."""
        steps = stored_count(tensors, "steps")
        kept = ("first", "second") if self.kind == "adamw" else ("first",) if self.momentum else ()
        if steps and not kept:
            raise Error(f"The stored optimiser has taken {steps} steps, and plain SGD counts none.")
        numbered = list(enumerate(parameters)) if steps else []
        require_names(tensors, ("steps", *(f"{name}.{i}" for name in kept for i, _ in numbered)))
        memory: dict[str, tuple[torch.Tensor, ...]] = {"first": (), "second": ()}
        for name in kept:
            low = 0.0 if name == "second" else -torch.inf
            found = (stored(tensors, f"{name}.{i}", torch.float32, own.shape, low) for i, own in numbered)
            memory[name] = tuple(
                moment.to(own.device, copy=True) for moment, (_, own) in zip(found, numbered, strict=True)
            )
        return replace(self, steps=steps, first=memory["first"], second=memory["second"])


@dataclass(frozen=True)
class FirstAdamW:
    """AdamW for a single step: its moments are still the gradient itself, so the step is known in closed form."""

    lr: float

    @torch.no_grad()
    def step(
        self, values: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], FirstAdamW]:
        kept = 1 - self.lr * WEIGHT_DECAY
        return [v * kept - self.lr * g / (g.abs() + EPS) for v, g in zip(values, gradients, strict=True)], self
