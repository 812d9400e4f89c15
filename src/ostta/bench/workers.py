"""The local engine: a bounded number of worker processes, reused from run to run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from .folder import RunLock, have_locks
from .machine import environment
from .spec import RunSpec, files_of, packages_of
from .worker import Ending, Job, Outcome, Step

# A process, and a line that it said; an empty one is its end.
Said = tuple["Process", bytes]


_TAIL = 4_000


# Seconds that a process has to end by itself.
_PATIENCE = 10.0


# Windows has no such signal.
_KILLED = getattr(signal, "SIGKILL", 9)


class Process:
    """`job` is the run that it has under way, None while it waits for one. `stays`: whether it can have another one after that.

    `variables` are those of the environment that it has beside the parent's; `once`: it is for one run only.
    """

    def __init__(self, threads: int, variables: dict[str, str], events: SimpleQueue[Said], *, once: bool) -> None:
        self.variables, self.stays = variables, not once
        self.job: Job | None = None
        self._once, self._said_before = once, 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._locks: socket.socket | None = None
        inherited: socket.socket | None = None
        if have_locks():
            self._locks, inherited = socket.socketpair()
        # -P: a file in the working folder must not stand in for a library. A session of its own: Ctrl-C is for the parent to deal with.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ostta.bench.worker", *_number(inherited)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment(threads), **variables},
            pass_fds=() if inherited is None else (inherited.fileno(),),
            start_new_session=True,
        )
        if inherited is not None:
            inherited.close()
        Thread(target=self._listen, args=(events,), daemon=True).start()

    def carry_out(self, job: Job, lock: RunLock) -> None:
        """Hand over a job with its lock: with no copy left here, the lock lasts as long as the run or the process."""
        assert self._process.stdin is not None
        self.job = job
        # A pipe is broken where the process has ended already; then `ending` says so.
        with lock, suppress(OSError):
            if self._locks is not None:
                socket.send_fds(self._locks, [b"."], lock.inherited)
            self._process.stdin.write(job.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()

    def finishes(self, line: bytes) -> bool:
        """Whether `line` says how the run ended."""
        return "ending" in _message(line)

    def tell(self, line: bytes, step: Callable[[RunSpec, int, int], None]) -> None:
        """Pass on what `line` says about progress."""
        message = _message(line)
        if self.job is not None:
            step(self.job.spec, message["done"], message["total"])

    def ending(self, line: bytes) -> Ending | None:
        """How the run ended, by the process's own words or by its death; None where it had no run."""
        job, self.job = self.job, None
        if job is None:
            self._close()
            return None
        if line:
            message = _message(line)
            self.stays = bool(message["stays"]) and not self._once
            self._said_before = os.fstat(self._errors.fileno()).st_size
            if not self.stays:
                self.end()
            return Ending.model_validate(message["ending"])
        self.stays = False
        code, said = self._process.wait(), self._last_words()
        self._close()
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=_end_of_process(code), trace=said or None)

    def end(self) -> None:
        """End it, and the run that it may have under way."""
        if self.job is not None:
            self._process.kill()
        self._close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        """The end of what it printed as errors in this run."""
        handle = self._errors.fileno()
        end = os.fstat(handle).st_size
        start = max(self._said_before, end - _TAIL)
        self._errors.seek(start)
        return self._errors.read(end - start).decode(errors="replace")

    def _listen(self, events: SimpleQueue[Said]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                events.put((self, line))
        events.put((self, b""))

    def _close(self) -> None:
        """Its standard input ends, which ends the process."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        if self._locks is not None:
            self._locks.close()
        self._errors.close()


def _number(inherited: socket.socket | None) -> list[str]:
    return [] if inherited is None else [str(inherited.fileno())]


def _message(line: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(line)
    return message


def _end_of_process(code: int) -> str:
    if code == -_KILLED:
        return "The process of this run was killed, as the system does where memory runs out."
    if code < 0:
        return f"The process of this run was ended by the signal {signal.Signals(-code).name}."
    return f"The process of this run ended with code {code} before it had a result."


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
