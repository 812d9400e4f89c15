"""Medians of alternating sides, and peak memory of a call."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

Call = Callable[[], object]


def alternate(sides: Mapping[str, Call], rounds: int, repeat: int = 1, warm: int = 1) -> dict[str, float]:
    """Median milliseconds a call of each side, the sides taking turns."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warm + rounds):
        for name, call in sides.items():
            began = time.perf_counter()
            for _ in range(repeat):
                call()
            if number >= warm:
                found[name].append(1e3 * (time.perf_counter() - began) / repeat)
    return {name: statistics.median(values) for name, values in found.items()}


def peak_megabytes(call: Call) -> float | None:
    """How much more memory than before the process holds at the worst moment of a call; None where Linux is not."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        return None
    gc.collect()
    before = psutil.Process().memory_info().rss
    reset.write_text("5")
    call()
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return max(0.0, (1024 * peak - before) / 1e6)
