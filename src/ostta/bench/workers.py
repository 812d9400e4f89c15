"""Workers: carry out one run after another, in this process (`inside`) or in local processes (`local`).

A local process is reused for runs of ostta's own code on the same GPU, as long as it is in the state of a new process
(`Freshness`). A run with code from outside, in a file or registered by a package, has a process of its own.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import struct
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch
from loky.process_executor import ProcessPoolExecutor
from pydantic import Field

from ..backbones.protocol import Backbone
from ..config.plugins import names_file
from ..core.types import Error
from .checkpoint import EVERY
from .folder import RunLock
from .machine import can_reset_peak, environment, give_back, limited, memory_now
from .run import Watch, ensure_result, open_backbone, prepare
from .spec import FileModel, RunSpec, files_of, packages_of, register_sources, run_key

# Seconds between two reports of progress, and between two checks that the parent process runs.
PAUSE = 0.2
# Number of images done, and their total number.
PROGRESS = struct.Struct("qq")
# Bytes of the last error output that the note of a failed run contains.
_TAIL = 4_000
# Callback for progress: the run, the number of images done, and their total number.
Step = Callable[[RunSpec, int, int], None]


class Job(FileModel):
    """The spec of a run, its data folder, its output folder, and its settings."""

    spec: RunSpec
    root: Path | None
    out: Path
    # As for `ensure_result`.
    keep_records: bool | None = None
    checkpoint_every: int = EVERY
    cache_features: bool = False
    log: str | None = None
    # The identity of the stream, if the driver has computed it on the same data.
    stream_identity: str | None = None
    # The content of the files of code that the spec names, which another machine may not have.
    sources: list[str] = Field(default_factory=list)


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class Ending(FileModel):
    """How a run ended. A failed run has a `reason`, and a `trace` if the error was not an `ostta.Error`.

    note: what a person should know about a run that did not fail.
    """

    spec: RunSpec
    state: Outcome
    reason: str = ""
    trace: str | None = None
    note: str = ""

    @property
    def key(self) -> str:
        return run_key(self.spec)


def attempt(job: Job, watch: Watch | None = None, backbone: Backbone | None = None) -> Ending:
    """Carry out a locked run, on `backbone` if it is loaded already. All errors become part of the ending."""
    try:
        register_sources(job.sources)
        file = ensure_result(
            prepare(job.spec, job.root, backbone, job.stream_identity),
            job.out,
            keep_records=job.keep_records,
            watch=watch,
            checkpoint_every=job.checkpoint_every,
            locked=True,
            cache_features=job.cache_features,
            log=job.log,
        )
    except Error as problem:
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=str(problem))
    except Exception as problem:
        reason = f"An unexpected {type(problem).__name__}: {str(problem) or 'no more is known'}."
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=reason, trace=traceback.format_exc())
    return Ending(spec=job.spec, state=Outcome.DONE if file.fresh else Outcome.SKIPPED, note=file.note)


class LoadedBackbones:
    """Cache of the last `most` backbones; None for no limit."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._loaded: dict[tuple[str, str, str], Backbone] = {}

    def of(self, spec: RunSpec, root: Path | None = None) -> Backbone | None:
        """Return the backbone of a run; None if it cannot be shared or opened, so that the run opens it itself."""
        if names_file(spec.backbone):
            return None
        key = (spec.backbone, spec.device, spec.dtype)
        found = self._loaded.pop(key, None)
        if found is None:
            # Free memory before loading: two large models may not fit.
            while self._most is not None and len(self._loaded) >= self._most:
                self._loaded.pop(next(iter(self._loaded)))
            try:
                found = open_backbone(spec, root)
            except Exception:
                return None  # the run reports the same problem
        self._loaded[key] = found
        return found


# Bytes by which a process may grow, such as by libraries that only some runs import.
MOST_GROWTH = 500_000_000


class Freshness:
    """The state of this process before its first run. `memory` returns the memory of the process in bytes."""

    def __init__(self, memory: Callable[[], int | None] = memory_now) -> None:
        self._memory = memory
        self._seed, self._settings = torch.initial_seed(), _settings()
        self._environment, self._folder = dict(os.environ), os.getcwd()
        self._filters = list(warnings.filters)
        self._least: int | None = None
        self._model: tuple[str, ...] = ()

    def begin(self) -> None:
        """Restore environment, working folder, warning filters and seed before a run."""
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        os.chdir(self._folder)
        warnings.filters[:] = self._filters  # type: ignore[index]
        torch.manual_seed(self._seed)

    def restored(self, ending: Ending) -> bool:
        """Return whether the process can be used for another run."""
        return (
            # An unexpected error may leave the process in any state.
            ending.trace is None
            and _settings() == self._settings
            and not any(_at_work())
            # Otherwise the peak memory of the next run would include this run.
            and can_reset_peak()
            and not self._leaked(ending)
        )

    def _leaked(self, ending: Ending) -> bool:
        """Return whether the process has grown since its first run on this backbone by memory that is not freed."""
        model = (ending.spec.backbone, ending.spec.device, ending.spec.dtype)
        if model != self._model:
            self._model, self._least = model, None
            # Garbage collection skips these objects, which would take as long as a short run.
            gc.unfreeze()
            give_back()
            gc.freeze()
        now = self._memory()
        if now is None:
            return True
        least = now if self._least is None else self._least
        if now > least + MOST_GROWTH:
            give_back()
            now = self._memory() or now
        self._least = min(least, now)
        return now > least + MOST_GROWTH


def _settings() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
    }


def _at_work() -> list[threading.Thread]:
    """Return the running threads that are not daemons."""
    return [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]


def inside(jobs: Iterator[tuple[Job, RunLock]], threads: int, step: Step) -> Iterator[Ending]:
    """Carry out `jobs` in this process, and yield their endings."""
    loaded = LoadedBackbones()
    with limited(threads):
        for job, lock in jobs:
            with lock:
                spec = job.spec

                def watch(done: int, total: int, hm: float | None, spec: RunSpec = spec) -> None:
                    step(spec, done, total)

                yield attempt(job, watch, loaded.of(spec, job.root))


_loaded: LoadedBackbones
_freshness: Freshness
_progress: int


def begin(parent: int, errors: str, progress: str) -> None:
    """Prepare a new worker process, which writes its error output and its progress to the files of these names."""
    global _loaded, _freshness, _progress
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Ctrl-C is for the parent process, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _progress = os.open(progress, os.O_WRONLY)
    _loaded, _freshness = LoadedBackbones(most=1), Freshness()


def carry_out(content: str) -> tuple[str, bool]:
    """Carry out a job in a worker process. Return its ending, and whether the process can carry out another run."""
    job = Job.model_validate_json(content)
    _freshness.begin()
    written = -PAUSE

    def watch(done: int, total: int, hm: float | None) -> None:
        nonlocal written
        if time.monotonic() - written >= PAUSE or done == total:
            written = time.monotonic()
            os.pwrite(_progress, PROGRESS.pack(done, total), 0)

    ending = attempt(job, watch, _loaded.of(job.spec, job.root))
    return ending.model_dump_json(), _freshness.restored(ending)


def _end_with(parent: int) -> None:
    """End this process when the parent process has ended."""
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)


# Functions that a worker process calls at its start and for each job.
BEGIN: Callable[[int, str, str], None] = begin
TASK: Callable[[str], tuple[str, bool]] = carry_out


class Worker:
    """One worker process. Its executor has no other process, so that a process that dies fails only its own run.

    job: the current run; None while the worker is idle. stays: whether the process can carry out another run.
    variables: environment variables of the process. once: whether the process is for one run only.
    """

    def __init__(self, threads: int, variables: dict[str, str], events: SimpleQueue[Worker], *, once: bool) -> None:
        self.variables, self.stays = variables, not once
        self.job: Job | None = None
        self._lock: RunLock | None = None
        self._once, self._events, self._logged = once, events, 0
        # Files for error output and progress outlive the process, and it cannot leave a lock behind.
        self._errors, self._progress = tempfile.NamedTemporaryFile(), tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._executor = ProcessPoolExecutor(
            max_workers=1,
            env={**environment(threads), **variables},
            initializer=BEGIN,
            initargs=(os.getpid(), self._errors.name, self._progress.name),
        )

    def carry_out(self, job: Job, lock: RunLock) -> None:
        """Start a run. The lock is held until the run has ended."""
        self.job, self._lock = job, lock
        os.truncate(self._progress.name, 0)
        self._ended: Future[tuple[str, bool]] = self._executor.submit(TASK, job.model_dump_json())
        self._ended.add_done_callback(lambda _: self._events.put(self))

    def report(self, step: Step) -> None:
        """Report the progress of the run to `step`."""
        content = os.pread(self._progress.fileno(), PROGRESS.size, 0)
        if self.job is not None and len(content) == PROGRESS.size:
            step(self.job.spec, *PROGRESS.unpack(content))

    def ending(self) -> Ending:
        """Return how the run ended, from the result of the process or from its exit code."""
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
        """End the process, and its run if there is one."""
        self._executor.shutdown(wait=True, kill_workers=True)
        self._release()
        self._errors.close()
        self._progress.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self.job = self._lock = None

    def _last_output(self) -> str:
        """Return the last error output of the process in this run."""
        end = os.fstat(self._errors.fileno()).st_size
        start = max(self._logged, end - _TAIL)
        return os.pread(self._errors.fileno(), end - start, start).decode(errors="replace")


def local(
    jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int, step: Step, *, fresh: bool = False
) -> Iterator[Ending]:
    """Carry out `jobs` in local processes, and yield their endings in the order in which the runs end.

    A job and its lock are taken when a worker is free. `step(spec, images, total)` is called regularly. `fresh`:
    whether each run has a new process. Closing the generator ends the processes.
    """
    events: SimpleQueue[Worker] = SimpleQueue()
    places: list[Worker | None] = [None] * workers
    try:
        while True:
            while free := _free(places):
                if (upcoming := next(jobs, None)) is None:
                    # There are no more jobs, and idle processes occupy memory.
                    _end(places, free)
                    break
                job, lock = upcoming
                _start(job, lock, places, free, threads, events, alone=fresh or _has_outside_code(job.spec))
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
    """Give the job to an idle process with the same variables, or to a new process."""
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
    """Return the variables that show the process one GPU, in turn, if the run does not name one."""
    if device != "cuda":
        return {}
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = (
        [number.strip() for number in shown.split(",")] if shown else list(map(str, range(torch.cuda.device_count())))
    )
    return {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} if gpus else {}


def _reason(problem: str) -> str:
    """Describe why a process ended, from the exit code in the message of loky."""
    found = re.search(r"\{(SIG\w+|EXIT)\((-?\d+)\)", problem)
    if found is None:
        detail = problem.splitlines()[0] if problem else "no reason"
        return f"The process of this run ended before it had a result ({detail})."
    name, code = found.groups()
    if name == "SIGKILL":
        return "The process of this run was killed, as the system does where memory runs out."
    if name == "EXIT":
        return f"The process of this run ended with code {code} before it had a result."
    return f"The process of this run was ended by the signal {name}."
