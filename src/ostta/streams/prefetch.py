"""Read images ahead of time in a thread, so that the model does not wait for them.

Reading, decoding and most array operations release the interpreter lock. Compared with a process that sends images
through a pipe, a thread has less overhead per image, does not require picklable sources, and works the same on every
system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TypeVar

Item = TypeVar("Item")

# Enough to cover an image that takes several times longer than the others, with little memory.
DEPTH = 8


def prefetched(items: Iterable[Item], depth: int = DEPTH) -> Iterator[Item]:
    """Yield `items` in order, computed by a thread that is at most `depth` items ahead.

    An exception of the thread is raised at the position of its item. If the consumer stops early, the thread stops.
    """
    room, ready, stopped = Semaphore(depth), SimpleQueue[tuple[list[Item], BaseException | None]](), Event()

    def produce() -> None:
        try:
            waiting = iter(items)
            while True:
                room.acquire()
                if stopped.is_set():
                    return
                # In a list that the consumer empties: a name in this frame would keep the image alive.
                ready.put(([next(waiting)], None))
        except StopIteration:
            ready.put(([], None))
        except BaseException as problem:
            ready.put(([], problem))

    worker = Thread(target=produce, name="ostta-prefetch", daemon=True)
    worker.start()
    try:
        while True:
            found, problem = ready.get()
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
