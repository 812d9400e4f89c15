"""Where tensors are and how precise they are: the names that people give to devices and types, and what depends on them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from .types import Error

NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def device_named(name: str | torch.device) -> torch.device:
    """The device called `name`; "auto" is the first GPU where there is one, else the processor.

    >>> device_named("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise Error(f"There is no device {name!r}: choose auto, cpu, cuda, cuda:1 and so on, or mps.") from None
    missing = _missing(device)
    if missing:
        raise Error(f"The device {str(name)!r} is not here: {missing}. Choose auto or cpu.")
    # A number, so that two names of one device are equal.
    return torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device


def _missing(device: torch.device) -> str | None:
    match device.type:
        case "cpu":
            return None if device.index in (None, 0) else "there is one processor, called cpu"
        case "cuda":
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            there = f"torch finds {count or 'no'} CUDA device{'s' * (count != 1)}"
            return None if count > (device.index or 0) else there
        case "mps":
            return None if torch.backends.mps.is_available() else "torch finds no Metal device"
        case other:
            # Backends from outside torch register a module by their name.
            module = getattr(torch, other, None)
            return None if module is not None and module.is_available() else f"torch has no backend {other!r}"


def dtype_named(name: str | torch.dtype) -> torch.dtype:
    """The type of a tower's numbers called `name`.

    >>> dtype_named("bfloat16")
    torch.bfloat16
    """
    dtype = DTYPES.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in DTYPES.values():
        raise Error(f"The dtype {name!r} is none of {', '.join(DTYPES)}.")
    return dtype


def set_precision(tower: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Put a tower on a device with its numbers in `dtype`; one in half precision runs under autocast from now on.

    Normalisations and overlays over it stay in single precision, and autocast brings the two together.
    """
    tower.to(device=device)
    for part in tower.modules():
        if not isinstance(part, NORMALISATIONS):
            for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
                tensor.data = tensor.data.to(dtype) if tensor.is_floating_point() else tensor.data
    run_in(tower, device, dtype)


def run_in(tower: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Say in which precision a tower runs; in half precision it is under autocast from now on.

    Overlays over it stay in single precision, and autocast brings the two together.
    """
    tower.runs_in = None if dtype == torch.float32 else (device.type, dtype)  # type: ignore[assignment]


def _runs_in(tower: object) -> tuple[str, torch.dtype] | None:
    # Not by `getattr`: for what is not there, a module looks in several places and raises.
    found: tuple[str, torch.dtype] | None = vars(tower).get("runs_in")
    return found


def in_half(tower: object) -> bool:
    """Whether the tower runs in half precision."""
    return _runs_in(tower) is not None


def in_single(features: torch.Tensor, tower: object) -> torch.Tensor:
    """What a tower in half precision gave, in single precision; what any other gave, as it is."""
    return features.float() if in_half(tower) else features


def own_precision(tower: object) -> AbstractContextManager[object]:
    """The precision that a tower was put in, for the time of a pass through it."""
    runs_in = _runs_in(tower)
    return nullcontext() if runs_in is None else torch.autocast(runs_in[0], dtype=runs_in[1])


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was told, so that a clock that is read now tells the truth."""
    kind = device.type
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()


def described(device: torch.device) -> str:
    """A device for the line of a result that names the hardware."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
