"""The modes of torch that a step needs, whatever mode its caller is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def learning() -> Iterator[None]:
    """Gradients can be taken here, also inside a caller's `torch.no_grad()` or `torch.inference_mode()`."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def answering() -> Iterator[None]:
    """No graph is kept here. Not inference mode: what is made in it could never be learned from."""
    with torch.inference_mode(False), torch.no_grad():
        yield
