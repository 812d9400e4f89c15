"""SIGTERM and Ctrl-C in a program that works through images one after the other."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Stoppable(Generic[Item]):
    """The `items`, until somebody asks to stop.

    Inside the `with` block a request takes effect while the next item is waited for, at once; never while one is worked on, nor
    while a state is saved. Further requests change nothing: whoever asked once more waits too.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self.asked = False
        self._waiting = False
        self._before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    class _Asked(BaseException):
        pass

    def __enter__(self) -> Stoppable[Item]:
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __iter__(self) -> Iterator[Item]:
        while True:
            try:
                item = self._next()
            except (StopIteration, self._Asked):
                return
            yield item

    def _next(self) -> Item:
        try:
            self._waiting = True
            # Checked only now: a request that came just before would otherwise wait for the next item.
            if self.asked:
                raise self._Asked
            return next(self._items)
        finally:
            self._waiting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._waiting:
            self._waiting = False
            raise self._Asked
