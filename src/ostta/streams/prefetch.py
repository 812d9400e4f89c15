"""Images made ahead of time, so that the model does not wait for them.

A thread does it: reading, decoding and most of the array work let the model run on meanwhile. Against a process that
sends images through a pipe, it leaves the model waiting less (taking an image from the pipe costs more than the
thread's whole hand-over), asks nothing of the sources, and works the same on every system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

Item = TypeVar("Item")

# Enough for the time of an image that takes several times longer than the others, and few enough to need hardly any memory.
DEPTH = 8


def prefetched(items: Iterable[Item], depth: int = DEPTH) -> Iterator[Item]:
    """`items` in their order, made by a thread that is at most `depth` of them ahead.

    What making an item raises is raised here, in its place. A reader that stops early stops the thread with it.
    """
    room, made, stopped = Semaphore(depth), SimpleQueue[tuple[list[Item], BaseException | None]](), Event()

    def make() -> None:
        try:
            waiting = iter(items)
            while True:
                room.acquire()
                if stopped.is_set():
                    return
                # In a list that is emptied on the other side: a name in this frame would keep the image alive.
                made.put(([next(waiting)], None))
        except StopIteration:
            made.put(([], None))
        except BaseException as problem:
            made.put(([], problem))

    worker = Thread(target=make, name="ostta-prefetch", daemon=True)
    worker.start()
    try:
        while True:
            found, problem = made.get()
            if problem is not None:
                raise problem
            if not found:
                return
            room.release()
            yield found.pop()
    finally:
        stopped.set()
        room.release()
        worker.join()
