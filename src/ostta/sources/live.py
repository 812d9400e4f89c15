"""Live sources: a thread queues the newest frames, drops older ones, and restores lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread

from ..core.errors import reason_of
from ..core.text import counted
from ..core.types import Error
from ..data.images import ImageSource
from .source import Item, Source, frame_item, unreadable

# Queue length. Each queued frame needs memory and increases the latency of predictions.
QUEUE_LENGTH = 2
# Seconds before each attempt to restore a connection; the last value is repeated.
RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# Time without a frame, in seconds, after which an event is added.
SILENCE_SECONDS = 15.0
# Delay of the first event about dropped frames, and interval between such events, in seconds.
FIRST_DROPS, BETWEEN_DROPS = 5.0, 60.0
# Seconds that `close` waits for the thread, which may be blocked in a read.
JOIN_SECONDS = 2.0

# Decodes one frame. Called only if the frame is used.
FrameDecoder = Callable[[], ImageSource]
# Connects and yields frames until the connection ends. Raises only Error.
Connect = Callable[[], Iterator[FrameDecoder]]


@dataclass(frozen=True, slots=True)
class _Frame:
    decode: FrameDecoder
    number: int
    time: float


class Live(Source):
    """A camera or a network stream.

    The first connection must succeed. A lost connection is restored in at most `retries` consecutive attempts.
    """

    live = waits = True

    def __init__(self, name: str, connect: Connect, every: int, retries: int | None) -> None:
        super().__init__(name)
        self._connect, self._every, self._retries = connect, every, retries
        self._reader: _Reader | None = None

    def check(self) -> None:
        """Connect and wait for the first frame."""
        reader = self._start()
        reader.answered.wait()
        if reader.problem is not None:
            self.close()
            raise reader.problem

    def __iter__(self) -> Iterator[Item]:
        reader = self._start()
        # Do not count frames that were dropped before the iteration.
        self._dropped = 0
        reader.drops = _DropCounter()
        silent = False
        try:
            while True:
                try:
                    frame = reader.frames.get(timeout=SILENCE_SECONDS)
                except Empty:
                    # The reader thread reports lost connections.
                    if not silent and not reader.disconnected:
                        silent = True
                        sentence = f"{self.name} has sent no frame for {SILENCE_SECONDS:g} seconds."
                        self.add_event("lost", sentence, {"seconds": SILENCE_SECONDS})
                    continue
                if silent and isinstance(frame, _Frame):
                    silent = False
                    self.add_event("reconnected", f"{self.name} sends frames again.")
                if frame is None or reader.stopped.is_set():
                    return
                if isinstance(frame, Error):
                    raise frame
                yield frame_item(frame.decode, f"{self.name}#{frame.number}", "", frame.time, frame.number)
                frame = None
        finally:
            self.close()

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.stop()

    def drop(self) -> None:
        """Count a dropped frame."""
        self._dropped += 1

    def _start(self) -> _Reader:
        if self._reader is None:
            self._reader = _Reader(self, self._connect, self._every, self._retries)
            self._reader.start()
        return self._reader


class _Reader:
    """Thread that reads a live source."""

    def __init__(self, source: Live, connect: Connect, every: int, retries: int | None) -> None:
        self._source, self._connect, self._every, self._retries = source, connect, every, retries
        self.frames: SimpleQueue[_Frame | Error | None] = SimpleQueue()
        # Set when the first frame arrives or the first connection fails.
        self.answered = Event()
        self.problem: Error | None = None
        self.disconnected = False
        self.stopped = Event()
        self.drops = _DropCounter()
        self._number = 0
        self._thread = Thread(target=self._run, name="ostta-source", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.frames.put(None)
        self.answered.set()
        # A blocked read ends after its timeout. The thread is a daemon, so it does not delay the exit of the process.
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._read()
        except Error as problem:
            if not self.answered.is_set():
                self.problem = problem
            self.frames.put(problem)
        except Exception as problem:  # An exception in a thread would otherwise be lost.
            message = f"{self._source.name} cannot be read: {type(problem).__name__}: {reason_of(problem)}."
            self.frames.put(unreadable(message))
        finally:
            self.answered.set()

    def _read(self) -> None:
        attempts, lost_at = 0, 0.0
        while not self.stopped.is_set():
            reason = "the stream ended"
            try:
                for decode in self._connect():
                    if self.stopped.is_set():
                        return
                    if attempts:
                        self._report_reconnection(attempts, time.monotonic() - lost_at)
                        attempts = 0
                    self._offer(decode)
                    del decode
            except Error as problem:
                if not self.answered.is_set():
                    raise
                reason = str(problem).rstrip(".")
            if not self.answered.is_set():
                raise unreadable(f"{self._source.name} sends no frames.")
            if self._retries is not None and attempts >= self._retries:
                again = f" and not restored in {counted(attempts, 'attempt')}" if attempts else ""
                raise Error(f"The connection to {self._source.name} was lost{again}: {reason}.", code="source-lost")
            if not attempts:
                lost_at = time.monotonic()
                self.disconnected = True
                sentence = f"The connection to {self._source.name} was lost: {reason}. It is tried again."
                self._source.add_event("lost", sentence)
            self.stopped.wait(RETRY_DELAYS[min(attempts, len(RETRY_DELAYS) - 1)])
            attempts += 1

    def _report_reconnection(self, attempts: int, seconds: float) -> None:
        self.disconnected = False
        after = f"{seconds:.0f} seconds and {counted(attempts, 'attempt')}"
        sentence = f"The connection to {self._source.name} was restored after {after}."
        self._source.add_event("reconnected", sentence, {"seconds": seconds, "tries": attempts})

    def _offer(self, decode: FrameDecoder) -> None:
        number, self._number = self._number, self._number + 1
        if number % self._every:
            return
        if self.frames.qsize() >= QUEUE_LENGTH:
            try:
                self.frames.get_nowait()
            except Empty:
                pass
            else:
                self._drop()
        self.frames.put(_Frame(decode, number, time.time()))
        self.answered.set()

    def _drop(self) -> None:
        self._source.drop()
        dropped = self.drops.count()
        if dropped:
            frames = f"{counted(dropped, 'frame')} of {self._source.name}"
            sentence = f"{frames} were dropped: they arrive faster than they are processed."
            self._source.add_event("dropped", sentence, {"frames": dropped})


class _DropCounter:
    """Counter of dropped frames that limits how often events are added."""

    def __init__(self) -> None:
        self._unreported = 0
        self._due: float | None = None

    def count(self) -> int:
        """Count a dropped frame. Return the number to report, or 0 if no event is due."""
        now = time.monotonic()
        self._unreported += 1
        if self._due is None:
            self._due = now + FIRST_DROPS
        if now < self._due:
            return 0
        reported, self._unreported, self._due = self._unreported, 0, now + BETWEEN_DROPS
        return reported
