"""Base class of all sources, and their items."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.types import Error, Event, ImageError
from ..data.images import ImageSource

# Maximum number of stored events, because a camera may reconnect for years.
EVENTS = 100

# Returns whether the item with this key has already been processed.
Skip = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a source.

    name:     a path, "clip.mp4#120" for frame 120, or an address.
    key:      identifier of the content that is stable across restarts. It consists of path, size and modification
              time, and for a frame also of its number. It is empty if an image cannot be read again, as from a camera.
    time:     seconds since 1970 for files (modification) and live sources (arrival), or since the start for videos.
    path:     path of the file, if the image is a file.
    problem:  reason why there is no image, if it is already known.

    >>> image.save("cat.png")
    >>> item = next(iter(ostta.sources.open("cat.png")))
    >>> item.name, item.frame, item.key.split("|")[1] == str(item.path.stat().st_size)
    ('cat.png', None, True)
    """

    image: ImageSource = field(compare=False, repr=False)
    name: str
    key: str
    time: float | None = None
    frame: int | None = None
    path: Path | None = None
    problem: str | None = None

    def require_image(self) -> ImageSource:
        """Return the image, or raise an `ostta.ImageError` with the reason if there is none.

        >>> image.save("cat.png")
        >>> adapter.step(next(iter(ostta.sources.open("cat.png"))).require_image())
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        if self.problem is not None:
            raise ImageError(self.problem)
        return self.image


class Source(ABC):
    """Base class of image sources. Create one with `ostta.sources.open`.

    A recorded source (`live` is False) yields every image. A live source drops images if the consumer is too slow and
    counts them in `dropped`. `waits` is True if the next image may not exist yet, as for live sources, followed folders
    and standard input. `events` contains recent events: frames "dropped", a connection "lost" or "reconnected".

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
        self._dropped = self._event_count = self._read_count = 0

    def __repr__(self) -> str:
        return f"Source({self.name})"

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dropped(self) -> int:
        """Number of frames that were dropped because the consumer was slower than the source."""
        return self._dropped

    @abstractmethod
    def __iter__(self) -> Iterator[Item]:
        """Yield the items from the start, or from the current frame for a live source."""

    def check(self) -> None:  # noqa: B027  Sources without a check need none.
        """Raise an Error if the source cannot be read, without reading an image.

        >>> image.save("cat.png")
        >>> print(ostta.sources.open("cat.png").check())
        None
        """

    def close(self) -> None:  # noqa: B027  Sources without resources need not close them.
        """Stop threads, close connections and end a waiting iteration. Repeated calls have no effect.

        >>> source = ostta.sources.open("-")
        >>> source.close()
        >>> source
        Source(-)
        """

    @property
    def event_count(self) -> int:
        """Number of events so far.

        >>> ostta.sources.open("-").event_count
        0
        """
        return self._event_count

    def new_events(self, until: int | None = None) -> list[Event]:
        """Return the events since the last call, at most the last hundred, up to event number `until`.

        >>> ostta.sources.open("-").new_events()
        []
        """
        count, kept = self._event_count, list(self.events)
        # Events are numbered from 0. `oldest` is the number of the first stored event.
        oldest, until = count - len(kept), count if until is None else until
        new = kept[max(self._read_count - oldest, 0) : max(until - oldest, 0)]
        self._read_count = max(self._read_count, until)
        return new

    def add_event(self, kind: str, sentence: str, evidence: Mapping[str, float] | None = None) -> None:
        """Add an event.

        >>> source = ostta.sources.open("-")
        >>> source.add_event("lost", "The camera is gone.")
        >>> source.new_events()
        [Event(kind='lost', sentence='The camera is gone.', evidence={})]
        """
        self.events.append(Event(kind, sentence, evidence or {}))
        self._event_count += 1

    def skips(self, key: str) -> bool:
        """Return whether the item with this key has already been processed.

        >>> ostta.sources.open("-", skip={"a"}.__contains__).skips("a")
        True
        """
        return bool(key) and self._skip is not None and self._skip(key)


def unreadable(message: str) -> Error:
    """Return the error for a source that cannot be opened or read."""
    return Error(message, code="source-unreadable")


def file_item(path: Path) -> Item:
    """Return the item of a file, which is read when the image is used.

    A missing file has no key, since it may be created later.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return Item(path, str(path), "", path=path)
    return Item(path, str(path), file_key(path, status.st_size, status.st_mtime_ns), status.st_mtime, path=path)


def missing_item(name: str, problem: str, path: Path | None = None) -> Item:
    """Return the item for an image that cannot be read."""
    return Item(b"", name, "", path=path, problem=problem)


def frame_item(decode: Callable[[], ImageSource], name: str, key: str, time: float | None, frame: int) -> Item:
    """Return the item of a frame. If `decode` raises an Error, the item contains its message."""
    try:
        image = decode()
    except Error as problem:
        return Item(b"", name, key, time, frame, problem=str(problem))
    return Item(image, name, key, time, frame)


def file_key(path: str | Path, size: int, changed: int) -> str:
    """Return the key of a file. `changed` is in nanoseconds. Name bytes that are not UTF-8 are escaped."""
    name = os.fsencode(os.path.abspath(path)).decode(errors="backslashreplace")
    return f"{name}|{size}|{changed}"
