"""One process of the local engine, as its parent sees it: jobs and their locks go in, what it says comes out."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from ..run.locks import RunLock, have_locks
from ..spec import RunSpec
from .job import Ending, Job, Outcome
from .threads import environment

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
            [sys.executable, "-P", "-m", "ostta.bench.engine.worker", *_number(inherited)],
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
