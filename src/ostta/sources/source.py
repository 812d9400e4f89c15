"""What every source is: items to iterate over, what happened on the way, and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from ..core.types import Event
from .item import Item

# Events that are kept: a camera may be lost and found for years.
EVENTS = 100

# Whether the item of a key has been judged already, and is not wanted again.
Skip = Callable[[str], bool]


class Source(ABC):
    """Images from outside, one after the other; made by `ostta.sources.open`.

    A recorded source (`live` is False) gives every image; one that is live drops those that the reader is too slow for, and `dropped`
    says how many. `waits` is True where the next image may not exist yet: what is live, a folder that is followed, standard input.
    `events` are the last things that happened: frames "dropped", a connection "lost" and "reconnected".

    >>> image.save("cat.png")
    >>> with ostta.sources.open("cat.png") as source:
    ...     print([item.name for item in source], source.live, source.dropped, list(source.events))
    ['cat.png'] False 0 []
    """

    live = False
    waits = False

    def __init__(self, name: str, skip: Skip | None = None) -> None:
        self.name, self._skip = name, skip
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self._dropped = self._happened = self._told = 0

    def __repr__(self) -> str:
        return f"Source({self.name})"

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """How many frames were left out because the reader was slower than the source."""
        return self._dropped

    @abstractmethod
    def __iter__(self) -> Iterator[Item]:
        """The items, from the beginning; what is live goes on with what comes now."""

    def check(self) -> None:  # noqa: B027  where there is nothing to be found out beforehand, nothing is done
        """Raise the Error that iterating would begin with, without reading an image.

        >>> image.save("cat.png")
        >>> print(ostta.sources.open("cat.png").check())
        None
        """

    def close(self) -> None:  # noqa: B027  what holds nothing open has nothing to close
        """End threads and connections; an iteration that waits ends. May be called again.

        >>> source = ostta.sources.open("-")
        >>> source.close()
        >>> source
        Source(-)
        """

    @property
    def event_count(self) -> int:
        """How many events there were so far.

        >>> ostta.sources.open("-").event_count
        0
        """
        return self._happened

    def new_events(self, until: int | None = None) -> list[Event]:
        """What happened since this was last asked, at most the last hundred events; `until` is the `event_count` to stop at.

        >>> ostta.sources.open("-").new_events()
        []
        """
        happened, kept = self._happened, list(self.events)
        # Numbers of events count from 0; the oldest of those that are kept:
        oldest, until = happened - len(kept), happened if until is None else until
        new = kept[max(self._told - oldest, 0) : max(until - oldest, 0)]
        self._told = max(self._told, until)
        return new

    def tell(self, kind: str, sentence: str, evidence: Mapping[str, float] | None = None) -> None:
        """Add an event.

        >>> source = ostta.sources.open("-")
        >>> source.tell("lost", "The camera is gone.")
        >>> source.new_events()
        [Event(kind='lost', sentence='The camera is gone.', evidence={})]
        """
        self.events.append(Event(kind, sentence, evidence or {}))
        self._happened += 1

    def wanted(self, key: str) -> bool:
        """Whether the item of this `key` is to be given: not where `skip` knows it.

        >>> ostta.sources.open("-", skip={"a"}.__contains__).wanted("a")
        False
        """
        return not (key and self._skip is not None and self._skip(key))
