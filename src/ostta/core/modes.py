"""The modes of torch that a step needs, whatever mode its caller is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def outside_inference() -> AbstractContextManager[object]:
    """Out of a caller's `torch.inference_mode()`: what is made in it could never be learned from."""
    # Asked first, because leaving a mode costs more than asking, also where there is nothing to leave.
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


def learning() -> AbstractContextManager[object]:
    """Gradients can be taken here, also inside a caller's `torch.no_grad()` or `torch.inference_mode()`."""
    # Whoever leaves inference mode has gradients.
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else torch.enable_grad()


@contextmanager
def answering() -> Iterator[None]:
    """No graph is kept here. Not inference mode: what is made in it could never be learned from."""
    with outside_inference(), torch.no_grad():
        yield
