"""From the thread of the pool back to the event loop: one wake-up for many answers, in the order they were made."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

# Called on the loop with the future of the pool, and how many steps the session's adapter had taken by then.
Handler = Callable[[Future[Any], int], None]


class Arrivals:
    """What the pool has done and the loop has not seen yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[Handler, Future[Any], int]] = deque()
        self._woken = False

    def expect(self, future: Future[Any], steps: Callable[[], int], handler: Handler) -> None:
        """Have `handler` called on the loop when `future` is done; `steps` is asked on the pool's thread, right after the step."""

        def arrived(done: Future[Any]) -> None:
            self._done.append((handler, done, steps()))
            if not self._woken:
                self._woken = True
                self._wake()

        future.add_done_callback(arrived)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._see)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._done.clear()

    def _see(self) -> None:
        # Before the first is taken: who comes later wakes the loop again.
        self._woken = False
        while self._done:
            handler, future, steps = self._done.popleft()
            handler(future, steps)
