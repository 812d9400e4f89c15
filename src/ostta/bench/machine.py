"""The machine of a run: cores, load, memory and threads."""

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
from .spec import FileModel

_TASKS = Path("/proc/self/task")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Share of waiting above which the machine was busy; without it, the load average relative to the number of cores.
BUSY_WAIT, BUSY_AVERAGE = 0.1, 1.25


class Load(FileModel):
    """Load of the machine at the end of a run.

    cores: number of usable cores. average: load average of the last minute, including the run. waited: share of the
    time in which the run was ready and had no core. None if the system does not provide a value.
    """

    cores: int
    average: float | None = None
    waited: float | None = None

    @property
    def busy(self) -> bool:
        """Whether other work made the times of the run longer.

        >>> Load(cores=2, average=1.1, waited=0.01).busy, Load(cores=2, average=6.0, waited=0.55).busy
        (False, True)
        """
        if self.waited is not None:
            return self.waited > BUSY_WAIT
        return self.average is not None and self.average > BUSY_AVERAGE * self.cores

    @property
    def remark(self) -> str:
        """A sentence about the times of the run; empty if the machine was not busy."""
        if not self.busy:
            return ""
        waited = "" if self.waited is None else f" the run waited for a core {100 * self.waited:.0f} % of its time,"
        return (
            f"The machine was busy:{waited} load average {self.average}, {self.cores} cores. "
            "Other work made ms/step longer."
        )


class LoadMeter:
    """Measures the load of the machine since its creation.

    >>> 0 <= (LoadMeter().read().waited or 0.0) <= 1
    True
    """

    def __init__(self) -> None:
        self._before = _times()

    def read(self, earlier: Load | None = None) -> Load:
        """Return the load since the creation, or that of the `earlier` parts of a resumed run if it was higher."""
        ran = waited = 0
        for thread, (ran_now, waited_now) in _times().items():
            ran_then, waited_then = self._before.get(thread, (0, 0))
            ran, waited = ran + ran_now - ran_then, waited + waited_now - waited_then
        share = round(waited / (ran + waited), 3) if ran + waited > 0 else None
        try:
            average = round(os.getloadavg()[0], 2)
        except (OSError, AttributeError):  # not available on Windows
            average = None
        if earlier is not None:
            share, average = _higher(share, earlier.waited), _higher(average, earlier.average)
        return Load(cores=cores(), average=average, waited=share)


def _times() -> dict[str, tuple[int, int]]:
    """Return the nanoseconds that each thread ran and waited for a core; empty if the system does not provide them."""
    found = {}
    try:
        threads = list(_TASKS.iterdir())
    except OSError:
        return {}
    for thread in threads:
        try:
            ran, waited, _ = (thread / "schedstat").read_text().split()
            found[thread.name] = int(ran), int(waited)
        except (OSError, ValueError):  # the thread has ended, or the kernel has no statistics
            continue
    return found


def _higher(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device | None = None) -> bool:
    """Reset the peak memory. Return False if the system cannot, so that the peak is that of the whole process."""
    if device is not None and device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    give_back()
    return can_reset_peak()


def can_reset_peak() -> bool:
    """Reset the peak of the main memory, and return whether that is possible."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return _of_status("VmHWM") is not None


def peak_memory(device: torch.device) -> float | None:
    """Return the peak memory on `device` in MB since `reset_peak`; None if the system does not provide it."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    peak = _of_status("VmHWM")
    if peak is not None:
        return round(peak / 1e6, 1)
    try:
        import resource
    except ImportError:  # not available on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


def memory_now() -> int | None:
    """Return the main memory of this process in bytes; None if the system does not provide it."""
    return _of_status("VmRSS")


def give_back() -> None:
    """Collect garbage, and return free memory of the allocator to the system."""
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


# Variables that take precedence in some libraries.
_OTHERS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def threads_from_environment() -> int | None:
    """Return the number in OMP_NUM_THREADS, the first of a list such as "4,2"; None if there is none."""
    first = os.environ.get(VARIABLE, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def environment(threads: int) -> dict[str, str]:
    """Return environment variables with which all libraries use this number of threads.

    >>> environment(2)["OPENBLAS_NUM_THREADS"]
    '2'
    """
    return dict.fromkeys((VARIABLE, *_OTHERS), str(threads))


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limit the threads of torch and NumPy in this process."""
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
