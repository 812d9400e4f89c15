"""How many threads a run has: those that were asked for, for torch and for NumPy's linear algebra alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
