"""How busy the machine was during a run: times taken beside other programs say little about a method."""

from __future__ import annotations

import os
from pathlib import Path

from ..result import Load

_TASKS = Path("/proc/self/task")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LoadMeter:
    """Measures from when it is made.

    >>> 0 <= (LoadMeter().read().waited or 0.0) <= 1
    True
    """

    def __init__(self) -> None:
        self._before = _times()

    def read(self, earlier: Load | None = None) -> Load:
        """The load since then; `earlier` is that of the parts of this run that other processes carried out, and the higher counts."""
        ran = waited = 0
        for thread, (ran_now, waited_now) in _times().items():
            ran_then, waited_then = self._before.get(thread, (0, 0))
            ran, waited = ran + ran_now - ran_then, waited + waited_now - waited_then
        share = round(waited / (ran + waited), 3) if ran + waited > 0 else None
        try:
            average = round(os.getloadavg()[0], 2)
        except (OSError, AttributeError):  # Windows has no such figure
            average = None
        if earlier is not None:
            share, average = _higher(share, earlier.waited), _higher(average, earlier.average)
        return Load(cores=cores(), average=average, waited=share)


def _times() -> dict[str, tuple[int, int]]:
    """Of each thread, the nanoseconds that it ran and those that it waited for a core; nothing where the system does not say."""
    found = {}
    try:
        threads = list(_TASKS.iterdir())
    except OSError:
        return {}
    for thread in threads:
        try:
            ran, waited, _ = (thread / "schedstat").read_text().split()
            found[thread.name] = int(ran), int(waited)
        except (OSError, ValueError):  # it has ended, or the kernel does not count
            continue
    return found


def _higher(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
