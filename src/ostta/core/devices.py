"""Devices and data types by name."""

from __future__ import annotations

import torch

from .types import Error

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def device_named(name: str | torch.device) -> torch.device:
    """Return the device `name`; "auto" is the first GPU, or the CPU if there is none.

    >>> device_named("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise Error(
            f"There is no device {name!r}: choose auto, cpu, cuda, cuda:1 and so on, or mps.", code="device-unknown"
        ) from None
    missing = _missing(device)
    if missing:
        raise Error(f"The device {str(name)!r} is not available: {missing}. Choose auto or cpu.", code="device-missing")
    # A number, so that two names of one device are equal.
    return torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device


def _missing(device: torch.device) -> str | None:
    """Return why a device is not available; None if it is."""
    match device.type:
        case "cpu":
            return None if device.index in (None, 0) else "there is only one CPU device, cpu"
        case "cuda":
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            reason = f"torch finds {count or 'no'} CUDA device{'s' * (count != 1)}"
            return None if count > (device.index or 0) else reason
        case "mps":
            return None if torch.backends.mps.is_available() else "torch finds no Metal device"
        case other:
            # Backends of other packages register a module under their name.
            module = getattr(torch, other, None)
            return None if module is not None and module.is_available() else f"torch has no backend {other!r}"


def dtype_named(name: str | torch.dtype) -> torch.dtype:
    """Return the data type `name` of an image tower.

    >>> dtype_named("bfloat16")
    torch.bfloat16
    """
    dtype = DTYPES.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in DTYPES.values():
        raise Error(f"The dtype {name!r} is none of {', '.join(DTYPES)}.", code="dtype-unknown")
    return dtype


def described(device: torch.device) -> str:
    """Return the name of a device for result files; for a GPU, the name of its model."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
