"""The peak memory of a run, and how a process that carries out several runs counts each from zero.

On Linux writing "5" to /proc/self/clear_refs sets the peak (VmHWM in /proc/self/status) back to what the process has now. What the
allocator keeps for later is given back to the system first, so that the leftovers of an earlier run do not count. On a GPU torch
counts, and is told to begin anew. Elsewhere a peak cannot be set back: it is that of the process.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device | None = None) -> bool:
    """Count the peak from now on; False where the system cannot, and the peak stays that of the whole process."""
    if device is not None and device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    give_back()
    return can_reset_peak()


def can_reset_peak() -> bool:
    """Whether the system can; then it has."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return _of_status("VmHWM") is not None


def peak_memory(device: torch.device) -> float | None:
    """Megabytes on the device that the model is on, since `reset_peak`; None where the system does not say."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    peak = _of_status("VmHWM")
    if peak is not None:
        return round(peak / 1e6, 1)
    try:
        import resource
    except ImportError:
        # Windows does not say.
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


def memory_now() -> int | None:
    """Bytes that this process has in main memory; None where the system does not say."""
    return _of_status("VmRSS")


def give_back() -> None:
    """Collect what nobody uses any more, and give the allocator's free memory back to the system."""
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)


def _of_status(name: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
