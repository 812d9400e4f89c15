"""Results of the pool, handed to the event loop in order, with one wake-up for many of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

# Called on the loop with the future of the pool and the number of steps that the adapter had taken by then.
Handler = Callable[[Future[Any], int], None]


class Arrivals:
    """Results that the loop has not handled yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[Handler, Future[Any], int]] = deque()
        self._woken = False

    def expect(self, future: Future[Any], steps: Callable[[], int], handler: Handler) -> None:
        """Call `handler` on the loop when `future` is done. `steps` is called on the pool's thread right after the step."""

        def arrived(done: Future[Any]) -> None:
            self._done.append((handler, done, steps()))
            if not self._woken:
                self._woken = True
                self._wake()

        future.add_done_callback(arrived)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._handle)
        except RuntimeError:  # the loop is closed
            self._done.clear()

    def _handle(self) -> None:
        # Reset before the first result is taken, so that later results wake the loop again.
        self._woken = False
        while self._done:
            handler, future, steps = self._done.popleft()
            handler(future, steps)
