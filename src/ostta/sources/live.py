"""What is live: a thread reads, the newest frames wait for the reader, older ones are dropped; what is lost is looked for again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread

from ..core.types import Error
from ..core.words import counted
from ..data.images import ImageSource
from .item import Item, frame_item
from .source import Source

# Frames that wait for the reader: each takes memory, and is older when it is judged.
WAITING = 2
# Seconds before a lost source is tried again; then the last of them for ever.
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# Seconds without a frame after which that is said.
SILENCE = 15.0
# Seconds after which it is first said that frames are dropped, and between two such events.
FIRST_DROPS, BETWEEN_DROPS = 5.0, 60.0
# Seconds that closing waits for the thread, which may be inside a read.
FAREWELL = 2.0

# One frame as it came, made an image only if it is wanted.
Shot = Callable[[], ImageSource]
# Connects, and gives shots until the connection ends; whatever is wrong is an Error.
Connect = Callable[[], Iterator[Shot]]


@dataclass(frozen=True, slots=True)
class _Arrived:
    shot: Shot
    number: int
    time: float


class Live(Source):
    """A camera or a stream. The first connection must succeed; one that is lost later is made again, `retries` times in a row at most."""

    live = waits = True

    def __init__(self, name: str, connect: Connect, every: int, retries: int | None) -> None:
        super().__init__(name)
        self._connect, self._every, self._retries = connect, every, retries
        self._reader: _Reader | None = None

    def check(self) -> None:
        """Connect, and wait for the first frame."""
        reader = self._reading()
        reader.answered.wait()
        if reader.refused is not None:
            self.close()
            raise reader.refused

    def __iter__(self) -> Iterator[Item]:
        reader = self._reading()
        # What came before anybody asked is not missed.
        self._dropped = 0
        reader.drops = _Drops()
        silent = False
        try:
            while True:
                try:
                    found = reader.frames.get(timeout=SILENCE)
                except Empty:
                    # What the thread knows of, it says itself.
                    if not silent and not reader.away:
                        silent = True
                        sentence = f"{self.name} has given no frame for {SILENCE:g} seconds."
                        self.tell("lost", sentence, {"seconds": SILENCE})
                    continue
                if silent and isinstance(found, _Arrived):
                    silent = False
                    self.tell("reconnected", f"{self.name} gives frames again.")
                if found is None or reader.stopped.is_set():
                    return
                if isinstance(found, Error):
                    raise found
                yield frame_item(found.shot, f"{self.name}#{found.number}", "", found.time, found.number)
                found = None
        finally:
            self.close()

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.stop()

    def drop(self) -> None:
        """Count a frame that nobody had the time for."""
        self._dropped += 1

    def _reading(self) -> _Reader:
        if self._reader is None:
            self._reader = _Reader(self, self._connect, self._every, self._retries)
            self._reader.start()
        return self._reader


class _Reader:
    """The thread behind a live source."""

    def __init__(self, source: Live, connect: Connect, every: int, retries: int | None) -> None:
        self._source, self._connect, self._every, self._retries = source, connect, every, retries
        self.frames: SimpleQueue[_Arrived | Error | None] = SimpleQueue()
        # Set once it is known whether the first connection gave a frame.
        self.answered = Event()
        self.refused: Error | None = None
        self.away = False
        self.stopped = Event()
        self.drops = _Drops()
        self._number = 0
        self._thread = Thread(target=self._run, name="ostta-source", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.frames.put(None)
        self.answered.set()
        # A read that hangs ends by its own time-out; the thread does not keep the program alive.
        self._thread.join(FAREWELL)

    def _run(self) -> None:
        try:
            self._read_for_ever()
        except Error as problem:
            if not self.answered.is_set():
                self.refused = problem
            self.frames.put(problem)
        except Exception as problem:  # a mistake of ours or of a library, which nobody would see in a thread
            self.frames.put(Error(f"{self._source.name} cannot be read: {type(problem).__name__}: {problem}."))
        finally:
            self.answered.set()

    def _read_for_ever(self) -> None:
        tried, lost_at = 0, 0.0
        while not self.stopped.is_set():
            reason = "the stream ended"
            try:
                for shot in self._connect():
                    if self.stopped.is_set():
                        return
                    if tried:
                        self._found_again(tried, time.monotonic() - lost_at)
                        tried = 0
                    self._offer(shot)
                    del shot
            except Error as problem:
                if not self.answered.is_set():
                    raise
                reason = str(problem).rstrip(".")
            if not self.answered.is_set():
                raise Error(f"{self._source.name} gives no frames.")
            if self._retries is not None and tried >= self._retries:
                again = f" and not found again in {counted(tried, 'try', 'tries')}" if tried else ""
                raise Error(f"{self._source.name} was lost{again}: {reason}.")
            if not tried:
                lost_at = time.monotonic()
                self.away = True
                self._source.tell("lost", f"{self._source.name} was lost: {reason}. It is tried again.")
            self.stopped.wait(WAITS[min(tried, len(WAITS) - 1)])
            tried += 1

    def _found_again(self, tries: int, seconds: float) -> None:
        self.away = False
        sentence = (
            f"{self._source.name} is there again after {seconds:.0f} seconds and {counted(tries, 'try', 'tries')}."
        )
        self._source.tell("reconnected", sentence, {"seconds": seconds, "tries": tries})

    def _offer(self, shot: Shot) -> None:
        number, self._number = self._number, self._number + 1
        if number % self._every:
            return
        if self.frames.qsize() >= WAITING:
            try:
                self.frames.get_nowait()
            except Empty:
                pass
            else:
                self._drop()
        self.frames.put(_Arrived(shot, number, time.time()))
        self.answered.set()

    def _drop(self) -> None:
        self._source.drop()
        dropped = self.drops.another()
        if dropped:
            sentence = f"{counted(dropped, 'frame')} of {self._source.name} were dropped, as they come faster than they are judged."
            self._source.tell("dropped", sentence, {"frames": dropped})


class _Drops:
    """How many frames were dropped since that was last said; it is said from time to time, not for each."""

    def __init__(self) -> None:
        self._unsaid = 0
        self._due: float | None = None

    def another(self) -> int:
        """Count one more; how many there are to be said now, 0 where it is not time yet."""
        now = time.monotonic()
        self._unsaid += 1
        if self._due is None:
            self._due = now + FIRST_DROPS
        if now < self._due:
            return 0
        said, self._unsaid, self._due = self._unsaid, 0, now + BETWEEN_DROPS
        return said
