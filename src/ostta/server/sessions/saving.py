"""Saving of a session: the stored data, the schedule, and the handling of failures.

The state is copied between two steps on the thread of the pool, and written by the writer thread. No more than
`save_every` steps are ever ahead of the stored snapshot, unless the store fails.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ...adapter import Adapter
from ...core.types import Error, Event
from ...live.pool import StreamPool
from ...state import StateCopy
from ..engine import Json
from ..logs import log
from ..problems import ProblemError, served_elsewhere
from ..settings import Settings
from .history import History, Totals
from .idempotency import AnswerCache
from .snapshot import compact, pack
from .store import LostError, SessionStore, Stored

# Seconds after which a failed save is tried again.
RETRY = 5.0
# Called on the loop with the future of the pool and the number of steps that the adapter had taken by then.
Handler = Callable[[Future[Any], int], None]


class Arrivals:
    """Results of the pool that the event loop has not handled yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[Handler, Future[Any], int]] = deque()
        self._woken = False

    def expect(self, future: Future[Any], handler: Handler, steps: Callable[[], int] = lambda: 0) -> None:
        """Call `handler` on the loop when `future` is done; `steps` is called on the pool's thread after the step."""

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


@dataclass(frozen=True, slots=True)
class Shared:
    """Objects that all sessions of a process share."""

    pool: StreamPool
    settings: Settings
    store: SessionStore | None
    arrivals: Arrivals
    # Decodes images and builds adapters; writes snapshots, one at a time.
    workers: ThreadPoolExecutor
    writer: ThreadPoolExecutor
    totals: Totals


@dataclass(slots=True)
class _Progress:
    """Number of learning steps, number of changes by hand, last number of the history, and last answer."""

    steps: int = 0
    changes: int = 0
    number: int = 0
    answer: int = 0


@dataclass(slots=True)
class _Saving:
    """The progress that is stored, and the state of the saves."""

    stored: _Progress = field(default_factory=_Progress)
    running: bool = False
    dirty_since: float = 0.0
    failed_at: float | None = None
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


class SavedSession(ABC):
    """A session without its images: identity, history and saving. `Session` adds the queue of images."""

    def __init__(self, id: str, name: str, adapter: Adapter, shared: Shared) -> None:
        self.id, self.name, self.adapter, self._shared = id, name, adapter, shared
        self._clock = shared.settings.clock
        self.created = self._clock.wall()
        self.history = History(self._clock, shared.settings.points)
        self.answers = AnswerCache()
        self.steps = self.saved_steps = adapter.steps
        # Why the session cannot be stored; None if it can.
        self.problem: str | None = None
        # No longer in this process: deleted, or moved to another one.
        self.ended = False
        # Another process has the lease.
        self.lost = False
        # Steps that were handed to the pool and are not done.
        self._learning = 0
        self._loop = asyncio.get_running_loop()
        self._done = _Progress()
        self._saving = _Saving(dirty_since=self._clock.steady())
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def to_json(self) -> Json:
        """Return the session as the API shows it."""

    @abstractmethod
    def end(self, problem: ProblemError) -> None:
        """Leave this process."""

    @abstractmethod
    def _dispatch(self) -> None:
        """Continue with images that waited for a save."""

    @property
    def dirty(self) -> bool:
        """Whether there are steps or changes that are not stored."""
        done, stored = self._done, self._saving.stored
        return self._shared.store is not None and (done.steps > stored.steps or done.changes > stored.changes)

    def _behind(self) -> int:
        return self._done.steps - self._saving.stored.steps

    def _may_step(self) -> bool:
        """Whether a crash after one more step would lose at most `save_every` steps."""
        return (
            self._shared.store is None
            or self._saving.failed_at is not None
            or self._behind() + self._learning < self._shared.settings.save_every
        )

    def _stepped(self) -> None:
        if not self.dirty:
            self._saving.dirty_since = self._clock.steady()
        self._done.steps += 1
        # Started early, so that images need not wait for it.
        if self._behind() >= max(1, self._shared.settings.save_every * 3 // 4) and self._saving.failed_at is None:
            self._begin_save()

    def save(self) -> asyncio.Future[None]:
        """Store the session now. The future is done when it is stored, or has the Error that says why it is not."""
        self._done.changes += 1
        self.history.changed()
        done: asyncio.Future[None] = self._loop.create_future()
        if self._shared.store is None:
            done.set_result(None)
        else:
            self._saving.waiters.append(done)
            self._begin_save()
        return done

    def save_if_due(self) -> None:
        """Start a save that is due by time; called about once a second. A clock that jumped back makes it due too."""
        now, saving = self._clock.steady(), self._saving
        if saving.failed_at is not None:
            if not 0 <= now - saving.failed_at < RETRY:
                self._begin_save()
        elif self.dirty and not 0 <= now - saving.dirty_since < self._shared.settings.save_seconds:
            self._begin_save()

    async def save_last(self) -> None:
        """Store everything that is not stored yet; the pool is closed already."""
        store = self._shared.store
        if store is not None and self.dirty and not self.lost:
            stored, progress = self._stored(), replace(self._done)
            await self._write(store.save, self.adapter.copy_state(), stored)
            self._saving.stored = progress

    async def create(self) -> None:
        """Store the session for the first time."""
        store = self._shared.store
        if store is not None:
            await self._write(store.create, self.adapter.copy_state(), self._stored())

    async def delete(self) -> None:
        """Delete what is stored, after a save that may be running. Nothing has changed if an Error is raised."""
        store = self._shared.store
        if store is not None:
            await self._loop.run_in_executor(self._shared.writer, store.delete, self.id)

    def _begin_save(self) -> None:
        if self._shared.store is None or self._saving.running:
            return
        try:
            future = self._shared.pool.call(self.id, lambda adapter: adapter.copy_state(), first=True)
        except Error as problem:  # the pool is closed, or the stream is gone
            self._save_ended(problem)
            return
        self._saving.running = True
        self._shared.arrivals.expect(future, self._copied)

    def _copied(self, future: Future[StateCopy], _: int) -> None:
        problem = future.exception()
        if problem is not None:
            self._save_ended(problem)
            return
        # Collected now: the next result of the pool may be a later step.
        stored, progress = self._stored(), replace(self._done)
        self._task = asyncio.create_task(self._store_copy(future.result(), stored, progress))

    async def _store_copy(self, copy: StateCopy, stored: Stored, progress: _Progress) -> None:
        store = self._shared.store
        assert store is not None
        try:
            await self._write(store.save, copy, stored)
        except Exception as problem:
            self._save_ended(problem)
            return
        self._saving.stored, self.saved_steps = progress, copy.steps
        self._saving.dirty_since = self._clock.steady()
        self._save_ended(None)

    async def _write(self, write: Callable[[Stored], None], copy: StateCopy, stored: Stored) -> None:
        """Call `write` on the writer thread with `stored` and the packed state."""
        await self._loop.run_in_executor(
            self._shared.writer, lambda: write(replace(stored, state=pack(compact(copy).to_bytes())))
        )

    def _save_ended(self, problem: BaseException | None) -> None:
        saving, saving.running = self._saving, False
        if problem is None:
            self._note_success()
        elif not self.ended:
            self._note_failure(problem)
        self.history.changed()
        if problem is None and saving.waiters and self._done.changes > saving.stored.changes:
            self._begin_save()  # changed again while it was written
        else:
            waiters, saving.waiters = saving.waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(problem) if problem is not None else waiter.set_result(None)
        if isinstance(problem, LostError):
            self.lost = True
            self.end(served_elsewhere())
        else:
            self._dispatch()

    def _note_success(self) -> None:
        self._shared.totals.saves_total += 1
        if self._saving.failed_at is not None:
            self._saving.failed_at, self.problem = None, None
            self.history.add_event(Event("stored", "The state of this session can be stored again."), self.steps)
            log("session is stored again", session=self.id)

    def _note_failure(self, problem: BaseException) -> None:
        self._shared.totals.save_failures_total += 1
        if self._saving.failed_at is None:
            sentence = "The state of this session is not stored: the log of the server says why."
            self.history.add_event(Event("not_stored", sentence), self.steps)
            self.problem = sentence
            log("session could not be saved", level="error", session=self.id, problem=str(problem))
        self._saving.failed_at = self._clock.steady()

    def _stored(self) -> Stored:
        """Return the data to store beside the state, with the new entries and answers, and update the progress."""
        history, answers, stored = self.history, self.answers, self._saving.stored
        self._done.number, self._done.answer = history.next_number - 1, answers.last
        return Stored(
            self.id,
            b"",
            # `shown` is what the overview shows while no process has the session.
            {"name": self.name, "created": self.created, **history.about(), "shown": self.to_json()},
            history.entries(stored.number),
            answers.stored(stored.answer),
            history.points[0].number if history.points else history.next_number,
            history.events[0].number if history.events else history.next_number,
            answers.first,
            self._clock.wall() - self._shared.settings.history_seconds,
        )

    def restore(self, stored: Stored) -> None:
        """Continue from what an earlier process stored."""
        created = stored.about.get("created")
        self.created = float(created) if isinstance(created, int | float) else self.created
        since = self._clock.wall() - self._shared.settings.history_seconds
        self.history.restore(stored.about, stored.entries, since)
        self.answers = AnswerCache.of(stored.answers)
        self._saving.stored.number, self._saving.stored.answer = self.history.next_number - 1, self.answers.last
