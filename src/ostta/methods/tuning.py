"""What the LayerNorm methods share: an overlay over the image tower, and one plain SGD step on it."""

from __future__ import annotations

import torch

from ..core.overlay import Overlay
from ..core.scores import cosines, unit
from ..core.types import Look, Outcome, ViewSource

NOT_FINITE = "the loss or its gradient is not finite"


def look(overlay: Overlay, classifier: torch.Tensor, views: ViewSource) -> Look:
    """The canonical view under the overlay, with graph unless gradients are switched off."""
    features = unit(overlay(views.canonical))[0]
    z = cosines(features, classifier)
    return Look(views, features, z, z)


def step(overlay: Overlay, classifier: torch.Tensor, seen: Look, loss: torch.Tensor, lr: float) -> Outcome:
    """One step of plain SGD on the overlay, or a failed outcome that moved nothing."""
    gradients = torch.autograd.grad(loss, overlay.parameters())
    norms = torch.stack(torch._foreach_norm(list(gradients)))
    if not bool(torch.isfinite(loss.detach() + norms.sum())):
        return Outcome(reason=NOT_FINITE, failed=True)
    with torch.no_grad():
        torch._foreach_add_(overlay.parameters(), gradients, alpha=-lr)

    def answer() -> torch.Tensor:
        with torch.no_grad():
            return look(overlay, classifier, seen.views).logits

    return Outcome(loss=float(loss.detach()), adapted=True, answer=answer)
