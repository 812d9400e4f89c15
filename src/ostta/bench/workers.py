"""The local engine: a bounded number of worker processes, reused from run to run.

A process is reused for runs of ostta's own code on the same GPU, as long as it is in the state of a new one (`worker.Freshness`). A run
with code from outside, in a file or registered by a package, has a process of its own.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from loky.process_executor import ProcessPoolExecutor

from .folder import RunLock
from .machine import environment
from .spec import RunSpec, files_of, packages_of
from .worker import PAUSE, PROGRESS, Ending, Job, Outcome, Step, begin, carry_out

# What a worker process calls at its start and for each job.
BEGIN: Callable[[int, str, str], None] = begin
TASK: Callable[[str], tuple[str, bool]] = carry_out
# Bytes of the last error output that the note of a failed run has.
_TAIL = 4_000


class Worker:
    """One worker process. It has an executor of its own, so that a process that dies fails its own run only.

    job: the run under way, None while the worker waits. stays: whether the process can carry out another run. `variables` are added to
    the environment of the process; `once`: the process is for one run only.
    """

    def __init__(self, threads: int, variables: dict[str, str], events: SimpleQueue[Worker], *, once: bool) -> None:
        self.variables, self.stays = variables, not once
        self.job: Job | None = None
        self._lock: RunLock | None = None
        self._once, self._events, self._logged = once, events, 0
        # The process writes its error output and its progress to files: they outlive it, and no lock can be left behind.
        self._errors, self._progress = tempfile.NamedTemporaryFile(), tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._executor = ProcessPoolExecutor(
            max_workers=1,
            env={**environment(threads), **variables},
            initializer=BEGIN,
            initargs=(os.getpid(), self._errors.name, self._progress.name),
        )

    def carry_out(self, job: Job, lock: RunLock) -> None:
        """Start a run. The lock is held until the run has ended; the process ends with this one."""
        self.job, self._lock = job, lock
        os.truncate(self._progress.name, 0)
        self._ended: Future[tuple[str, bool]] = self._executor.submit(TASK, job.model_dump_json())
        self._ended.add_done_callback(lambda _: self._events.put(self))

    def report(self, step: Step) -> None:
        """Tell `step` how far the run is."""
        content = os.pread(self._progress.fileno(), PROGRESS.size, 0)
        if self.job is not None and len(content) == PROGRESS.size:
            step(self.job.spec, *PROGRESS.unpack(content))

    def ending(self) -> Ending:
        """Return how the run ended, as the process said or by its exit code."""
        assert self.job is not None
        job = self.job
        self._release()
        try:
            content, fit = self._ended.result()
        except Exception as problem:
            output, self.stays = self._last_output(), False
            self.end()
            return Ending(spec=job.spec, state=Outcome.FAILED, reason=_reason(str(problem)), trace=output or None)
        self.stays = fit and not self._once
        self._logged = os.fstat(self._errors.fileno()).st_size
        if not self.stays:
            self.end()
        return Ending.model_validate_json(content)

    def end(self) -> None:
        """End the process, and the run that it may have under way."""
        self._executor.shutdown(wait=True, kill_workers=True)
        self._release()
        self._errors.close()
        self._progress.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self.job = self._lock = None

    def _last_output(self) -> str:
        """Return the end of what the process wrote as errors in this run."""
        end = os.fstat(self._errors.fileno()).st_size
        start = max(self._logged, end - _TAIL)
        return os.pread(self._errors.fileno(), end - start, start).decode(errors="replace")


def local(
    jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int, step: Step, *, fresh: bool = False
) -> Iterator[Ending]:
    """Yield the endings of `jobs` as they come. A job is taken, with its lock, when a worker is free.

    `step(spec, images, total)` is called now and then. `fresh`: a new process for each run. Closing the generator ends the processes.
    """
    events: SimpleQueue[Worker] = SimpleQueue()
    places: list[Worker | None] = [None] * workers
    try:
        while True:
            while free := _free(places):
                if (taken := next(jobs, None)) is None:
                    # There are no more jobs, and idle processes occupy memory.
                    _end(places, free)
                    break
                _start(*taken, places, free, threads, events, alone=fresh or _has_outside_code(taken[0].spec))
            busy = [worker for worker in places if worker is not None and worker.job is not None]
            if not busy:
                return
            try:
                ended = events.get(timeout=PAUSE)
            except Empty:
                for worker in busy:
                    worker.report(step)
                continue
            if ended in busy:
                ended.report(step)
                ending = ended.ending()
                if not ended.stays:
                    places[places.index(ended)] = None
                yield ending
    finally:
        _end(places, range(workers))


def _end(places: list[Worker | None], which: Iterable[int]) -> None:
    for place in which:
        worker, places[place] = places[place], None
        if worker is not None:
            worker.end()


def _free(places: list[Worker | None]) -> list[int]:
    """Return the places without a run; those with an idle process come first."""
    free = [place for place, worker in enumerate(places) if worker is None or worker.job is None]
    return sorted(free, key=lambda place: places[place] is None)


def _start(
    job: Job,
    lock: RunLock,
    places: list[Worker | None],
    free: list[int],
    threads: int,
    events: SimpleQueue[Worker],
    *,
    alone: bool,
) -> None:
    """Give the job to an idle process with the same variables, else to a new one in the place of another."""
    for place in () if alone else free:
        worker = places[place]
        if worker is not None and worker.variables == _own_gpu(job.spec.device, place):
            worker.carry_out(job, lock)
            return
    place = free[-1]  # an empty one, if there is any
    _end(places, [place])
    try:
        new = places[place] = Worker(threads, _own_gpu(job.spec.device, place), events, once=alone)
    except BaseException:
        lock.release()
        raise
    new.carry_out(job, lock)


def _has_outside_code(spec: RunSpec) -> bool:
    return bool(files_of(spec) or packages_of(spec))


def _own_gpu(device: str, place: int) -> dict[str, str]:
    """Return the variables that show a process one GPU only, if the run does not name one: workers take them in turn."""
    if device != "cuda":
        return {}
    import torch

    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = (
        [number.strip() for number in shown.split(",")] if shown else list(map(str, range(torch.cuda.device_count())))
    )
    return {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} if gpus else {}


def _reason(problem: str) -> str:
    """Say why a process ended, from the exit code in loky's message."""
    found = re.search(r"\{(SIG\w+|EXIT)\((-?\d+)\)", problem)
    if found is None:
        return f"The process of this run ended before it had a result ({problem.splitlines()[0] if problem else 'no reason'})."
    name, code = found.groups()
    if name == "SIGKILL":
        return "The process of this run was killed, as the system does where memory runs out."
    if name == "EXIT":
        return f"The process of this run ended with code {code} before it had a result."
    return f"The process of this run was ended by the signal {name}."
