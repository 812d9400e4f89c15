"""The machine that a run is on: cores, load, memory and threads."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from ..core.devices import described
from .result import Load

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


VARIABLE = "OMP_NUM_THREADS"


# Each library looks at a variable of its own first.
_OTHERS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def threads_from_environment() -> int | None:
    """What OMP_NUM_THREADS asks for; of a list such as "4,2" the first. None where it says nothing that can be used."""
    first = os.environ.get(VARIABLE, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def environment(threads: int) -> dict[str, str]:
    """The variables of a process in which every library has so many threads.

    >>> environment(2)["OPENBLAS_NUM_THREADS"]
    '2'
    """
    return dict.fromkeys((VARIABLE, *_OTHERS), str(threads))


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """In this process, whose libraries are loaded already: as many threads for torch and for NumPy."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def hardware(device: torch.device) -> str:
    """Describe processor, device and Python version in one line."""
    processor = f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores"
    where = "" if device.type == "cpu" else f", {described(device)}"
    return f"{processor}{where}, python {platform.python_version()}"
