"""Stop an iteration between two items on SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Stoppable(Generic[Item]):
    """An iteration over `items` that ends when a signal arrives.

    Inside the `with` block, a signal ends the iteration at once while it waits for the next item. It never interrupts
    the processing of an item or a save. Further signals have no effect.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self.stop_requested = False
        self._waiting = False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    class _StopRequested(BaseException):
        pass

    def __enter__(self) -> Stoppable[Item]:
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __iter__(self) -> Iterator[Item]:
        while True:
            try:
                item = self._next()
            except (StopIteration, self._StopRequested):
                return
            yield item

    def _next(self) -> Item:
        try:
            self._waiting = True
            # Check after `_waiting` is set; otherwise a signal in between would take effect only after the next item.
            if self.stop_requested:
                raise self._StopRequested
            return next(self._items)
        finally:
            self._waiting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True
        if self._waiting:
            self._waiting = False
            raise self._StopRequested
