"""A worker: one run after another in one process."""

from __future__ import annotations

import gc
import os
import signal
import struct
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from pydantic import Field

from ..backbones.protocol import Backbone
from ..config.plugins import names_file
from ..core.types import Error
from .checkpoint import EVERY
from .file_model import FileModel
from .folder import RunLock
from .machine import can_reset_peak, give_back, limited, memory_now
from .run import Watch, ensure_result, open_backbone, prepare
from .spec import RunSpec, register_sources, run_key

# Seconds between two reports of progress, and between two checks that the parent process runs.
PAUSE = 0.2
# Images done, and their total number.
PROGRESS = struct.Struct("qq")
# Told of progress: the run, how many images are done, and of how many.
Step = Callable[[RunSpec, int, int], None]


class Job(FileModel):
    """What to run, on which data, and into which folder."""

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
    # The content of the files of code that the spec names: they need not be where the run is carried out.
    sources: list[str] = Field(default_factory=list)


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class Ending(FileModel):
    """How a run ended; where it failed, `reason` is a sentence and `trace` is there if nobody had foreseen it."""

    spec: RunSpec
    state: Outcome
    reason: str = ""
    trace: str | None = None

    @property
    def key(self) -> str:
        return run_key(self.spec)


def attempt(job: Job, watch: Watch | None = None, backbone: Backbone | None = None) -> Ending:
    """Carry out a locked run, on `backbone` where it is loaded already; whatever goes wrong is part of the ending."""
    try:
        register_sources(job.sources)
        made = ensure_result(
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
    return Ending(spec=job.spec, state=Outcome.DONE if made.fresh else Outcome.SKIPPED)


class LoadedBackbones:
    """The last `most` backbones that runs asked for; None: all of them."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._loaded: dict[tuple[str, str, str], Backbone] = {}

    def of(self, spec: RunSpec, root: Path | None = None) -> Backbone | None:
        """The backbone of a run, if it is one that may be shared; None: the run opens it, or says why it cannot."""
        if names_file(spec.backbone):
            return None
        key = (spec.backbone, spec.device, spec.dtype)
        found = self._loaded.pop(key, None)
        if found is None:
            # Before the next one is loaded: two large models may not fit.
            while self._most is not None and len(self._loaded) >= self._most:
                self._loaded.pop(next(iter(self._loaded)))
            try:
                found = open_backbone(spec, root)
            except Exception:
                return None  # the run will meet the same problem, and say so
        self._loaded[key] = found
        return found


# Bytes that a process may grow by: libraries that some runs need and others do not, and the allocator's odd ends.
MOST_GROWTH = 500_000_000


class Freshness:
    """What this process was like before its first run; `memory` says how many bytes it has."""

    def __init__(self, memory: Callable[[], int | None] = memory_now) -> None:
        self._memory = memory
        self._seed, self._settings = torch.initial_seed(), _settings()
        self._environment, self._folder = dict(os.environ), os.getcwd()
        self._filters = list(warnings.filters)
        self._least: int | None = None
        self._model: tuple[str, ...] = ()

    def begin(self) -> None:
        """Before a run."""
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        os.chdir(self._folder)
        warnings.filters[:] = self._filters  # type: ignore[index]
        torch.manual_seed(self._seed)

    def restored(self, ending: Ending) -> bool:
        """After a run: whether the next one may have this process too."""
        return (
            # What nobody foresaw may have left anything.
            ending.trace is None
            and _settings() == self._settings
            and not any(_at_work())
            # Else the peak memory of the next run would be that of this one.
            and can_reset_peak()
            and not self._leaked(ending)
        )

    def _leaked(self, ending: Ending) -> bool:
        """Whether the process has grown since its first run on this backbone, by what cannot be given back."""
        model = (ending.spec.backbone, ending.spec.device, ending.spec.dtype)
        if model != self._model:
            self._model, self._least = model, None
            # What is there now stays: looking through it before each run would take as long as a short run.
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
    """The threads that somebody still waits for; those that only watch, such as a progress bar's, are daemons."""
    return [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]


def inside(jobs: Iterator[tuple[Job, RunLock]], threads: int, step: Step) -> Iterator[Ending]:
    """The endings of `jobs` as they come."""
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
    """Prepare a new worker process. It writes its error output and its progress to the files of these names."""
    global _loaded, _freshness, _progress
    Thread(target=_end_with, args=(parent,), daemon=True).start()
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
    """End this process when the parent process has ended: nobody waits for the run any more."""
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os._exit(1)
