"""The local engine: a bounded number of processes, a fresh one for each run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO

from ..run.locks import RunLock
from ..spec import RunSpec
from .job import Ending, Job, Outcome

Step = Callable[[RunSpec, int, int], None]
_TAIL = 4_000
# Windows has no such signal.
_KILLED = getattr(signal, "SIGKILL", 9)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local(jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int, step: Step) -> Iterator[Ending]:
    """The endings of `jobs` as they come. A job is taken, with its lock, when there is room for it.

    `step(spec, images, of how many)` is told now and then. Whoever stops reading ends the processes.
    """
    events: SimpleQueue[tuple[_Run, bytes]] = SimpleQueue()
    running: list[_Run] = []
    try:
        while True:
            while len(running) < workers and (taken := next(jobs, None)) is not None:
                place = min(set(range(workers)) - {run.place for run in running})
                running.append(_Run(*taken, threads, events, place))
            if not running:
                return
            run, line = events.get()
            if line:
                run.hear(line, step)
            else:
                running.remove(run)
                yield run.ending()
    finally:
        for run in running:
            run.kill()


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


class _Run:
    """One process, and what it has said so far."""

    def __init__(
        self, job: Job, lock: RunLock, threads: int, events: SimpleQueue[tuple[_Run, bytes]], place: int
    ) -> None:
        """`place` is its number among those that run at the same time, by which it gets a GPU."""
        self._job, self.place = job, place
        self._ending: Ending | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        # -P: a file in the working folder must not stand in for a library. A session of its own: Ctrl-C is for the parent to deal with.
        # The lock goes over to the child; with no copy left here, it lasts exactly as long as the child.
        with lock:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ostta.bench.engine.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), **_own_gpu(job.spec.device, place)},
                pass_fds=lock.inherited,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        # A pipe is broken where the process has ended already; then `ending` says so.
        with suppress(BrokenPipeError):
            self._process.stdin.write(job.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
        Thread(target=self._listen, args=(events,), daemon=True).start()

    def _listen(self, events: SimpleQueue[tuple[_Run, bytes]]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                events.put((self, line))
        events.put((self, b""))

    def hear(self, line: bytes, step: Step) -> None:
        message = json.loads(line)
        if "ending" in message:
            self._ending = Ending.model_validate(message["ending"])
        else:
            step(self._job.spec, message["done"], message["total"])

    def ending(self) -> Ending:
        """How it ended, once it has."""
        code = self._process.wait()
        if self._ending is None:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")[-_TAIL:]
            self._ending = Ending(
                spec=self._job.spec, state=Outcome.FAILED, reason=_end_of_process(code), trace=said or None
            )
        self._close()
        return self._ending

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._errors.close()


def _end_of_process(code: int) -> str:
    if code == -_KILLED:
        return "The process of this run was killed, as the system does where memory runs out."
    if code < 0:
        return f"The process of this run was ended by the signal {signal.Signals(-code).name}."
    return f"The process of this run ended with code {code} before it had a result."
