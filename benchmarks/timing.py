"""Medians of alternating sides, and peak memory of a call."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

Call = Callable[[], object]
Clock = Callable[[], float]


def rounds_of(
    sides: Mapping[str, Call], rounds: int, repeat: int = 1, warm: int = 1, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Milliseconds a call of each side in each round, the sides taking turns, forwards and backwards."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm + rounds):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            began = clock()
            for _ in range(repeat):
                sides[name]()
            if number >= warm:
                found[name].append(1e3 * (clock() - began) / repeat)
    return found


def alternate(sides: Mapping[str, Call], rounds: int, repeat: int = 1, warm: int = 1) -> dict[str, float]:
    """Median milliseconds a call of each side, the sides taking turns."""
    return {name: statistics.median(values) for name, values in rounds_of(sides, rounds, repeat, warm).items()}


def settled_memory() -> int:
    """Return the bytes of the process after freed memory was returned; otherwise it would hide a later peak."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(psutil.Process().memory_info().rss)


def peak_megabytes(call: Call) -> float | None:
    """How much more memory than before the process holds at the worst moment of a call; None where Linux is not."""
    return timed_peak(call)[1]


def timed_peak(call: Call) -> tuple[float, float | None]:
    """Milliseconds of one call, and its `peak_megabytes`."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    before, linux = settled_memory(), reset.exists()
    if linux:
        reset.write_text("5")
    began = time.perf_counter()
    call()
    ms = 1e3 * (time.perf_counter() - began)
    if not linux:
        return ms, None
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return ms, max(0.0, (1024 * peak - before) / 1e6)
