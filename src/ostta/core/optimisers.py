"""How an overlay moves along its gradients, and what an optimiser remembers between steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch.optim.adamw import adamw

from .checks import require_names, stored, stored_count
from .types import Error

# Of AdamW, at PyTorch's defaults, as the published code leaves them.
EPS, WEIGHT_DECAY, BETAS = 1e-8, 0.01, (0.9, 0.999)


class Optimiser:
    """SGD, with momentum or without, or AdamW."""

    def __init__(self, kind: Literal["sgd", "adamw"], lr: float, momentum: float = 0.0) -> None:
        self.kind, self.lr, self.momentum = kind, lr, momentum
        self.steps = 0
        # Of each parameter: its velocity under SGD, or its two moments under AdamW. Nothing before the first step.
        self._first: list[torch.Tensor] = []
        self._second: list[torch.Tensor] = []

    @torch.no_grad()
    def move(self, parameters: list[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """The next step along `gradients`."""
        along = list(gradients)
        if self.kind == "sgd" and not self.momentum:
            torch._foreach_add_(parameters, along, alpha=-self.lr)
            return
        if not self._first:
            self._first = [torch.zeros_like(gradient) for gradient in along]
            self._second = [torch.zeros_like(gradient) for gradient in along] if self.kind == "adamw" else []
        if self.kind == "sgd":
            torch._foreach_mul_(self._first, self.momentum)
            torch._foreach_add_(self._first, along)
            torch._foreach_add_(parameters, self._first, alpha=-self.lr)
        else:
            adamw(
                parameters, along, self._first, self._second, [], [torch.tensor(float(self.steps)) for _ in along],
                foreach=True, amsgrad=False, beta1=BETAS[0], beta2=BETAS[1], lr=self.lr, weight_decay=WEIGHT_DECAY,
                eps=EPS, maximize=False,
            )  # fmt: skip
        self.steps += 1

    def tensors(self) -> dict[str, torch.Tensor]:
        memory = {f"first.{i}": tensor.clone() for i, tensor in enumerate(self._first)}
        memory |= {f"second.{i}": tensor.clone() for i, tensor in enumerate(self._second)}
        return {"steps": torch.tensor(self.steps), **memory}

    def load(self, tensors: dict[str, torch.Tensor], parameters: Sequence[torch.Tensor]) -> None:
        """Take over the memory of an optimiser of `parameters`; refused whole where it cannot be that of one like this."""
        steps = stored_count(tensors, "steps")
        kept = ("first", "second") if self.kind == "adamw" else ("first",) if self.momentum else ()
        if steps and not kept:
            raise Error(f"The stored optimiser has taken {steps} steps, and plain SGD counts none.")
        numbered = list(enumerate(parameters)) if steps else []
        require_names(tensors, ("steps", *(f"{name}.{i}" for name in kept for i, _ in numbered)))
        memory: dict[str, list[torch.Tensor]] = {"first": [], "second": []}
        for name in kept:
            low = 0.0 if name == "second" else -torch.inf
            memory[name] = [stored(tensors, f"{name}.{i}", torch.float32, p.shape, low).clone() for i, p in numbered]
        self.steps, self._first, self._second = steps, memory["first"], memory["second"]


def first_adamw_step(start: torch.Tensor, gradient: torch.Tensor, lr: float) -> torch.Tensor:
    """Where AdamW goes first: its moments are still the gradient itself, so the step is known in closed form."""
    return start * (1 - lr * WEIGHT_DECAY) - lr * gradient / (gradient.abs() + EPS)
