"""One gradient step on the loss of one image. Every step of every method and of the stream pool goes through this module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.optimisers import Stepper
from ..core.overlay import encode
from ..core.types import Look, ViewSource
from .trained_overlay import TrainedOverlay

# Tensors with at most this many values are joined before they are checked: copying them is faster than an operation on each.
SMALL = 4096


@dataclass(frozen=True, slots=True)
class Gradient:
    """A proposed gradient step: the values that move, the optimiser and the loss.

    loss:         a function of the look at the image, with graph, and of the unit features [N, D] of further images, with graph:
                  `augmented` more views of the image, followed by `pixels` [.., 3, H, W].
    looks_again:  whether the answer needs the features of the image under the new values.
    answer:       logits after the step, from the new overlay and these features; None leaves it to the method's `answer`.
    """

    overlay: TrainedOverlay
    optimiser: Stepper
    loss: Callable[[Look[Any], torch.Tensor], torch.Tensor]
    augmented: int = 0
    looks_again: bool = True
    pixels: torch.Tensor | None = None
    answer: Callable[[TrainedOverlay, torch.Tensor], torch.Tensor] | None = None

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
class Trained:
    """The result of a gradient step: new values, the optimiser of the next step, and the loss."""

    overlay: TrainedOverlay
    optimiser: Stepper
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a gradient step is discarded. Nothing of the image is remembered then."""

    reason: str


NOT_FINITE = Failure("the loss or its gradient is not finite")
TOO_FAR = Failure("the step would make the parameters not finite")


def gradient_step(gradient: Gradient, look: Look[Any]) -> Trained | Failure:
    """Compute the loss, its gradient and one step of the optimiser. Nothing is stored."""
    if gradient.further:
        further = encode(gradient.overlay.vision, gradient.further_images(look.views), gradient.overlay)
    else:
        further = look.features[None][:0]
    loss = gradient.loss(look, further)
    # A loss need not depend on all values: L_U does not depend on prompts that are trained together with the LayerNorms.
    return optimiser_step(
        gradient, loss, torch.autograd.grad(loss, gradient.overlay.parameters(), materialize_grads=True)
    )


def optimiser_step(gradient: Gradient, loss: torch.Tensor, gradients: Sequence[torch.Tensor]) -> Trained | Failure:
    """Compute one step of the optimiser from gradients that are known. Nothing is stored."""
    value = float(loss.detach())
    if not math.isfinite(value) or not _finite(gradients):
        return NOT_FINITE
    values, optimiser = gradient.optimiser.step(gradient.overlay.parameters(), gradients)
    if not _finite(values):
        return TOO_FAR
    return Trained(gradient.overlay.moved(values), optimiser, value)


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
