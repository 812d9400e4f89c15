"""How precise the numbers of a tower are, and what depends on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def run_in(tower: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Say in which precision a tower runs; in half precision it is under autocast from now on.

    Overlays over it stay in single precision, and autocast brings the two together.
    """
    tower.runs_in = None if dtype == torch.float32 else (device.type, dtype)  # type: ignore[assignment]


def in_half(tower: nn.Module) -> bool:
    """Whether the tower runs in half precision."""
    return getattr(tower, "runs_in", None) is not None


def own_precision(tower: nn.Module) -> AbstractContextManager[object]:
    """The precision that a tower was put in, for the time of a pass through it."""
    runs_in: tuple[str, torch.dtype] | None = getattr(tower, "runs_in", None)
    return nullcontext() if runs_in is None else torch.autocast(runs_in[0], dtype=runs_in[1])
