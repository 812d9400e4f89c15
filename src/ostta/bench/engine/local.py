"""The local engine: a bounded number of processes that live on from one run to the next.

A process is used again where that changes nothing: for runs of ostta's own code, on the same GPU, as long as it is as good as a new
one (`freshness.py`). A run with code from outside, in a file or registered by a package, has a process to itself, as nobody knows what
such code leaves behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue

from ..own_code import files_of, packages_of
from ..run.locks import RunLock
from ..spec import RunSpec
from .job import Ending, Job
from .process import Process, Said

Step = Callable[[RunSpec, int, int], None]


def local(
    jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int, step: Step, *, fresh: bool = False
) -> Iterator[Ending]:
    """The endings of `jobs` as they come. A job is taken, with its lock, when there is room for it.

    `step(spec, images, of how many)` is told now and then. `fresh`: a new process for each run. Whoever stops reading ends the processes.
    """
    events: SimpleQueue[Said] = SimpleQueue()
    places: list[Process | None] = [None] * workers
    try:
        while True:
            while free := _free(places):
                if (taken := next(jobs, None)) is None:
                    # There will be no more, and what waits for them only takes memory.
                    _end(places, free)
                    break
                alone = fresh or _has_outside_code(taken[0].spec)
                _start(*taken, places, free, threads, events, alone=alone)
            busy = [process for process in places if process is not None and process.job is not None]
            if not busy:
                return
            process, line = events.get()
            if process not in places:
                continue  # the last words of one that was replaced
            if line and not process.finishes(line):
                process.tell(line, step)
            elif (ending := process.ending(line)) is not None:
                if not process.stays:
                    places[places.index(process)] = None
                yield ending
            else:
                places[places.index(process)] = None  # it ended while it had nothing to do
    finally:
        _end(places, range(workers))


def _end(places: list[Process | None], which: Iterable[int]) -> None:
    for place in which:
        process, places[place] = places[place], None
        if process is not None:
            process.end()


def _free(places: list[Process | None]) -> list[int]:
    """The places without a run; those with a process that waits come first."""
    free = [place for place, process in enumerate(places) if process is None or process.job is None]
    return sorted(free, key=lambda place: places[place] is None)


def _start(
    job: Job,
    lock: RunLock,
    places: list[Process | None],
    free: list[int],
    threads: int,
    events: SimpleQueue[Said],
    *,
    alone: bool,
) -> None:
    """The job goes to a process that waits for one like it, else to a new one in the place of another."""
    for place in () if alone else free:
        process, gpu = places[place], _own_gpu(job.spec.device, place)
        if process is not None and process.variables == gpu:
            process.carry_out(job, lock)
            return
    place = free[-1]  # an empty one, if there is any
    old = places[place]
    if old is not None:
        old.end()
    try:
        new = places[place] = Process(threads, _own_gpu(job.spec.device, place), events, once=alone)
    except BaseException:
        lock.release()
        raise
    new.carry_out(job, lock)


def _has_outside_code(spec: RunSpec) -> bool:
    return bool(files_of(spec) or packages_of(spec))


def _own_gpu(device: str, place: int) -> dict[str, str]:
    """What shows a process one GPU alone, where the run leaves open which: workers take them in turn."""
    if device != "cuda":
        return {}
    import torch

    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = (
        [number.strip() for number in shown.split(",")] if shown else list(map(str, range(torch.cuda.device_count())))
    )
    return {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} if gpus else {}
