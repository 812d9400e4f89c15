"""Saving sessions on the way: copied between two steps on the pool's thread, written by a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from ..core.types import Error, Event
from ..live.pool import StreamPool
from ..state import StateCopy
from .arrivals import Arrivals
from .logs import log
from .session import Session
from .settings import Settings
from .store import LostError, SessionStore, Stored

# Seconds after which a save that failed is tried again.
RETRY = 5.0


@dataclass(slots=True)
class Saving:
    """How far the saving of one session is. All counts are of steps taken in this process."""

    learned: int = 0
    saved: int = 0
    # The same for everything else that is stored, such as the name.
    changes: int = 0
    saved_changes: int = 0
    running: bool = False
    since: float = 0.0
    failed_at: float | None = None
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def dirty(self) -> bool:
        return self.learned > self.saved or self.changes > self.saved_changes


class Keeper:
    """All its functions are called on the loop. Without a store there is nothing to do, and nothing is done.

    `ended` is called after each save of a session, whatever became of it; `lost` when another process has become its writer.
    """

    def __init__(
        self,
        store: SessionStore | None,
        pool: StreamPool,
        settings: Settings,
        arrivals: Arrivals,
        ended: Callable[[Session], None],
        lost: Callable[[Session], None],
    ) -> None:
        self._store, self._pool, self._arrivals, self._ended, self._lost = store, pool, arrivals, ended, lost
        self._every, self._seconds, self._steady = settings.save_every, settings.save_seconds, settings.clock.steady
        self._loop = asyncio.get_running_loop()
        self._savings: dict[str, Saving] = {}
        # Ids that are deleted from the store, and may be known here a moment longer.
        self._deleted: set[str] = set()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ostta-keeper", daemon=True)
        self._thread.start()
        self.saves = self.failures = 0

    # --- what happens to sessions -------------------------------------------------------------------------------------------
    def add(self, session: Session) -> None:
        self._savings[session.id] = Saving(since=self._steady())

    def may_step(self, session: Session, learning: int) -> bool:
        """Whether one more step could be lost without breaking the promise; `learning` steps are on their way already."""
        saving = self._savings[session.id]
        return (
            self._store is None
            or saving.failed_at is not None
            or saving.learned - saving.saved + learning < self._every
        )

    def stepped(self, session: Session) -> None:
        saving = self._savings[session.id]
        if not saving.dirty:
            saving.since = self._steady()
        saving.learned += 1
        # Begun early, so that nobody waits for it.
        if saving.learned - saving.saved >= max(1, self._every * 3 // 4) and saving.failed_at is None:
            self._begin(session, saving)

    def changed(self, session: Session) -> asyncio.Future[None]:
        """Something was changed by hand: save it now. The future is done when it is stored, or an Error says why not."""
        saving = self._savings[session.id]
        saving.changes += 1
        done: asyncio.Future[None] = self._loop.create_future()
        if self._store is None:
            done.set_result(None)
            return done
        saving.waiting.append(done)
        self._begin(session, saving)
        return done

    def tick(self, sessions: list[Session]) -> None:
        """Save what has waited long enough; called about once a second."""
        now = self._steady()
        for session in sessions:
            saving = self._savings[session.id]
            if saving.failed_at is not None:
                # A clock that went back makes it due too.
                if not 0 <= now - saving.failed_at < RETRY:
                    self._begin(session, saving)
            elif saving.dirty and not 0 <= now - saving.since < self._seconds:
                self._begin(session, saving)

    async def settled(self, session: Session) -> None:
        """Wait until all that has happened so far is stored; an Error where it cannot be."""
        if self._store is not None and self._savings[session.id].dirty:
            await self.changed(session)

    def forget(self, session: Session) -> None:
        """The session is no longer here; what is stored stays."""
        self._savings.pop(session.id, None)
        self._deleted.discard(session.id)

    async def delete(self, session: Session) -> None:
        """Delete what is stored, after whatever is being written; nothing has changed if an Error or OSError is raised."""
        store = self._store
        if store is not None:

            def delete() -> None:
                store.delete(session.id)
                self._deleted.add(session.id)

            await self._later(delete)
        self.forget(session)

    async def close(self, sessions: list[Session]) -> list[str]:
        """Save all that is not saved; the pool is closed already. Returns the ids of sessions that could not be saved."""
        unsaved = []
        if self._store is not None:
            for session in sessions:
                saving = self._savings[session.id]
                if saving.dirty:
                    copy, about = session.adapter.copy_state(), session.about()
                    try:
                        await self._later(lambda c=copy, a=about, s=session: self._write(s.id, c, a))  # type: ignore[misc]
                    except Error as problem:
                        unsaved.append(session.id)
                        log("session could not be saved", level="error", session=session.id, problem=str(problem))
                    else:
                        saving.saved, saving.saved_changes = saving.learned, saving.changes
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)
        return unsaved

    # --- inside -----------------------------------------------------------------------------------------------------------
    def _begin(self, session: Session, saving: Saving) -> None:
        if self._store is None or saving.running:
            return
        try:
            future = self._pool.call(session.id, lambda adapter: adapter.copy_state(), first=True)
        except Error as problem:  # the pool is closed or the session is gone
            self._end(session, saving, problem)
            return
        saving.running = True
        self._arrivals.expect(future, lambda: 0, lambda done, _: self._copied(session, saving, done))

    def _copied(self, session: Session, saving: Saving, future: Future[StateCopy]) -> None:
        problem = future.exception()
        if problem is not None:
            self._end(session, saving, problem)
            return
        copy, about, learned, changes = future.result(), session.about(), saving.learned, saving.changes

        def written(problem: BaseException | None) -> None:
            if problem is None:
                saving.saved, saving.saved_changes, session.saved_steps = learned, changes, copy.steps
                saving.since = self._steady()
            self._end(session, saving, problem)

        def write() -> None:
            problem: BaseException | None = None
            try:
                if session.id in self._savings and session.id not in self._deleted:
                    self._write(session.id, copy, about)
            except Exception as raised:
                problem = raised
            self._tell(lambda: written(problem))

        self._work.put(write)

    def _write(self, id: str, copy: StateCopy, about: dict[str, Any]) -> None:
        assert self._store is not None
        try:
            self._store.save(Stored(id, copy.to_bytes(), about))
        except OSError as problem:
            raise Error(f"The state could not be written ({problem.strerror or problem}).") from None

    def _end(self, session: Session, saving: Saving, problem: BaseException | None) -> None:
        saving.running = False
        if problem is None:
            self._note_success(session, saving)
        elif session.id in self._savings:
            self._note_failure(session, saving, problem)
        session.changed()
        if problem is None and saving.waiting and saving.changes > saving.saved_changes:
            self._begin(session, saving)  # changed once more while it was written
        else:
            waiting, saving.waiting = saving.waiting, []
            for each in waiting:
                _settle(each, problem)
        if isinstance(problem, LostError):
            self._lost(session)
        else:
            self._ended(session)

    def _note_success(self, session: Session, saving: Saving) -> None:
        self.saves += 1
        if saving.failed_at is not None:
            saving.failed_at, session.problem = None, None
            event = Event("stored", "The state of this session can be stored again.")
            session.happened(event, session.steps, "session")
            log("session is stored again", session=session.id)

    def _note_failure(self, session: Session, saving: Saving, problem: BaseException) -> None:
        self.failures += 1
        if saving.failed_at is None:
            sentence = "The state of this session is not stored: the disk is full or cannot be written."
            session.happened(Event("not_stored", sentence), session.steps, "session")
            session.problem = sentence
            log("session could not be saved", level="error", session=session.id, problem=str(problem))
        saving.failed_at = self._steady()

    async def _later(self, function: Callable[[], None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()

        def run() -> None:
            problem: BaseException | None = None
            try:
                function()
            except Exception as raised:
                problem = raised
            self._tell(lambda: _settle(done, problem))

        self._work.put(run)
        await done

    def _tell(self, function: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _settle(future: asyncio.Future[None], problem: BaseException | None) -> None:
    if not future.done():
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(problem)
