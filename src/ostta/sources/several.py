"""Several sources, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from ..core.types import Error
from .item import Item, missing_item
from .source import Source

Named = TypeVar("Named")


class Several(Source, Generic[Named]):
    """The items of what is named, each opened by `make` when it is its turn. Where that cannot be, an item says why.

    `waits` is True if one of the sources does.
    """

    def __init__(self, names: Sequence[Named], make: Callable[[Named], Source], waits: bool) -> None:
        super().__init__(", ".join([*map(str, names[:3]), *(["..."] if len(names) > 3 else [])]))
        self.waits = waits
        self._names, self._make = names, make
        self._current: Source | None = None

    def __iter__(self) -> Iterator[Item]:
        for name in self._names:
            try:
                with self._make(name) as self._current:
                    for item in self._current:
                        self._take_over(self._current)
                        yield item
            except Error as problem:
                yield missing_item(str(name), str(problem))
            if self._current is not None:
                self._take_over(self._current)
                self._dropped += self._current.dropped
                self._current = None

    @property
    def dropped(self) -> int:
        return self._dropped + (0 if self._current is None else self._current.dropped)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()

    def _take_over(self, source: Source) -> None:
        for event in source.new_events():
            self.tell(event.kind, event.sentence, event.evidence)
