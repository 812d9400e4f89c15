"""The process of runs: `python -m ostta.bench.engine.worker`, started by `local.py`. Jobs come in as lines, messages go out as lines.

It carries out one run after another, and keeps what takes long to get: the libraries and the last backbone. `freshness.py` says what
else is as it was at the start. With each job comes its lock, where the system has locks: over the socket whose number is the argument.
Standard input stays open as long as the parent lives. Its end is the sign that nobody waits for a run any more.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

from .freshness import Freshness
from .job import Ending, Job, attempt
from .loaded import LoadedBackbones

# Seconds between two messages about progress.
PAUSE = 0.2


def main() -> None:
    """Carry out the jobs on standard input, until it ends or this process is not fit for another one."""
    locks = socket.socket(fileno=int(sys.argv[1])) if len(sys.argv) > 1 else None
    lines: SimpleQueue[bytes] = SimpleQueue()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as messages:
        # What libraries print must not get between the messages.
        os.dup2(2, 1)
        Thread(target=_listen, args=(lines,), daemon=True).start()

        def tell(message: dict[str, object]) -> None:
            print(json.dumps(message), file=messages, flush=True)

        loaded, freshness, stays = LoadedBackbones(most=1), Freshness(), True
        while stays:
            job = Job.model_validate_json(lines.get())
            freshness.begin()
            with _lock_from(locks):
                ending = _carried_out(job, loaded, tell)
            stays = freshness.restored(ending)
            tell({"ending": ending.model_dump(mode="json"), "stays": stays})
    # Without the usual end, which waits for threads that a run may have left.
    os._exit(0)


def _carried_out(job: Job, loaded: LoadedBackbones, tell: Callable[[dict[str, object]], None]) -> Ending:
    told = -PAUSE

    def watch(done: int, total: int, hm: float | None) -> None:
        nonlocal told
        if time.monotonic() - told >= PAUSE or done == total:
            told = time.monotonic()
            tell({"done": done, "total": total})

    return attempt(job, watch, loaded.of(job.spec, job.root))


@contextmanager
def _lock_from(locks: socket.socket | None) -> Iterator[None]:
    """The lock of a job lasts until its run has ended, or until this process has, whichever is first."""
    if locks is None:
        yield
        return
    _, held, _, _ = socket.recv_fds(locks, 1, 1)
    try:
        yield
    finally:
        for handle in held:
            os.close(handle)


def _listen(lines: SimpleQueue[bytes]) -> None:
    # Below Python's own buffers, whose lock would be in the way of a normal end.
    unfinished = b""
    while received := os.read(0, 65_536):
        *whole, unfinished = (unfinished + received).split(b"\n")
        for line in whole:
            lines.put(line)
    os._exit(1)


if __name__ == "__main__":
    main()
