"""Which sessions are here: made, restored, adopted, released, deleted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..adapter import Adapter
from ..core.types import Error, Prediction
from ..live.pool import StreamPool
from .arrivals import Arrivals
from .keeping import Keeper
from .line import Entry, Line, Total
from .logs import log
from .pictures import Kept
from .problems import ProblemError, one_line
from .session import Session
from .settings import Settings
from .states import restored
from .store import SessionStore, Stored, new_id
from .wanted import checked_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """A session with what waits for it and the thumbnails of its images."""

    session: Session
    line: Line
    kept: Kept


class Roster:
    """The sessions of this process by id. Made and used on the event loop; what takes long is done by `workers`."""

    def __init__(
        self, pool: StreamPool, settings: Settings, store: SessionStore | None, workers: ThreadPoolExecutor
    ) -> None:
        self.pool, self.settings, self.store, self._workers = pool, settings, store, workers
        self._loop = asyncio.get_running_loop()
        self.arrivals = Arrivals(self._loop)
        self.keeper = Keeper(store, pool, settings, self.arrivals, self._saved, self._lost)
        self._members: dict[str, Member] = {}
        self._total = Total()
        # Those that are being made or restored count too.
        self._expected = 0
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self.stopping = False
        # Figures: images that were judged, stored sessions that could not be restored, and events of guards.
        self.judged = self.unreadable = self.guard_events = 0
        # Of the judged images: undecided ones, those with a probability, and the sum of the probabilities.
        self.undecided = self.with_probability = 0
        self.probability_sum = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id: str) -> bool:
        return id in self._members

    def found(self, id: str) -> Member:
        """The session of that id, or a problem with status 404."""
        member = self._members.get(id)
        if member is None:
            raise ProblemError(404, f"There is no session {one_line(id, 40)!r}.")
        return member

    def sessions(self) -> list[Session]:
        return [member.session for member in self._members.values()]

    @property
    def waiting(self) -> int:
        """Images that wait, of all sessions."""
        return self._total.count

    # --- new ones -----------------------------------------------------------------------------------------------------------
    async def new(self, make: Callable[[], Adapter], name: Any) -> Session:
        """A session with the adapter that `make` gives, stored before anybody hears of it."""
        wanted = None if name is None else checked_name(name)
        self._refuse_full()
        self._expected += 1
        try:
            adapter = await self.work(make)
            id = new_id()
            session = self._session(id, wanted or f"session {id[:6]}", adapter)
            if self.store is not None:
                stored = Stored(id, await self.work(adapter.copy_state().to_bytes), session.about())
                await self.work(lambda: self._first_save(stored))
            await self._add(session)
        finally:
            self._expected -= 1
        return session

    async def adopt(self, id: str) -> None:
        """Bring a stored session into this process; nothing happens where it is here already."""
        if id in self._members:
            return
        if id not in self._adopting:
            self._adopting[id] = asyncio.create_task(self._adopted(id))
            self._adopting[id].add_done_callback(lambda _: self._adopting.pop(id))
        await asyncio.shield(self._adopting[id])

    async def adopt_all(self) -> None:
        """Bring all stored sessions; the files of one that cannot be restored stay as they are, for a person to look at."""
        assert self.store is not None
        stored, most = await self.work(self.store.ids), self.settings.limits.sessions
        if len(stored) > most:
            log("more sessions are stored than may be made", level="warning", stored=len(stored), max_sessions=most)
        for id in stored:
            try:
                await self.adopt(id)
            except Error as problem:
                self.unreadable += 1
                log("session could not be restored", level="error", session=id, problem=str(problem))
        log("sessions restored", sessions=len(self), unreadable=self.unreadable)

    async def _adopted(self, id: str) -> None:
        store = self.store
        if store is None:
            raise ProblemError(404, f"There is no session {one_line(id, 40)!r}.")
        # The limit is for new sessions: one that is stored has been promised already.
        self._refuse_stopping()
        self._expected += 1
        try:
            stored = await self.work(lambda: store.load(id))
            # What is stored was allowed when it was made, whatever the limit is now.
            limits = replace(self.settings.limits, session_bytes=sys.maxsize)
            adapter = await self.work(lambda: restored(stored.state, self.pool.backbone, limits))
            name = stored.about.get("name")
            session = self._session(id, name if isinstance(name, str) else f"session {id[:6]}", adapter)
            session.take_over(stored.about)
            await self._add(session)
        finally:
            self._expected -= 1

    # --- the end of one -------------------------------------------------------------------------------------------------------
    async def release(self, id: str) -> None:
        """Save a session and forget it here; it stays in the store. Images that wait are refused for now.

        Where it cannot be saved it stays here, and an Error says so.
        """
        member = self.found(id)
        moved = ProblemError(503, "The session is moving to another process: send again.", 1)
        member.line.close(moved)
        try:
            await member.line.emptied()
            await self.keeper.settled(member.session)
        except Error:
            member.line.open()
            raise
        await self._remove(id, moved)
        self.keeper.forget(member.session)

    async def drop(self, id: str) -> None:
        """Forget a session here, without saving it: another process has it now, and this one must not answer for it."""
        member = self._members.get(id)
        if member is not None:
            await self._remove(id, ProblemError(503, "The session is in another process now: send again.", 1))
            self.keeper.forget(member.session)

    async def delete(self, id: str) -> None:
        """Forget a session for good. If the store cannot delete it, it stays here too: a restart would bring it back."""
        member, gone = self.found(id), ProblemError(404, f"The session {id!r} was deleted.")
        member.line.close(gone)
        try:
            await self.keeper.delete(member.session)
        except (Error, OSError) as problem:
            member.line.open()
            log("session could not be deleted", level="error", session=id, problem=str(problem))
            raise ProblemError(
                507, "The session could not be deleted: the disk of the server cannot be written.", 30
            ) from None
        if id in self._members:
            await self._remove(id, gone)

    async def close(self) -> list[str]:
        """Answer what the pool has, save all, and end the threads. Returns the ids of sessions that could not be saved."""
        self.stopping = True
        for member in self._members.values():
            member.line.close(ProblemError(503, "The server is shutting down.", 5))
            member.session.changed()
        await self.work(self.pool.close)
        await asyncio.sleep(0)  # what the pool answered last is seen now
        return await self.keeper.close(self.sessions())

    # --- inside -----------------------------------------------------------------------------------------------------------
    def restored(self, state: bytes) -> Adapter:
        return restored(state, self.pool.backbone, self.settings.limits)

    async def work(self, function: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._workers, function)

    def _session(self, id: str, name: str, adapter: Adapter) -> Session:
        return Session(id, name, adapter, self.settings.clock, self.settings.points)

    async def _add(self, session: Session) -> None:
        await self.work(lambda: self.pool.add(session.id, session.adapter))
        line = Line(session, self.pool, self.arrivals, self.keeper.may_step, self._judged, self._total)
        self.keeper.add(session)
        self._members[session.id] = Member(session, line, Kept())

    async def _remove(self, id: str, why: ProblemError) -> None:
        member = self._members.pop(id)
        member.line.close(why)
        member.session.ended = True
        member.session.changed()
        await self.work(lambda: self.pool.remove(id))

    def _refuse_stopping(self) -> None:
        if self.stopping:
            raise ProblemError(503, "The server is shutting down.", 5)

    def _refuse_full(self) -> None:
        self._refuse_stopping()
        most = self.settings.limits.sessions
        if len(self) + self._expected >= most:
            raise ProblemError(
                503, f"There are {len(self)} sessions, and {most} are the most that this server has.", 30
            )

    def _first_save(self, stored: Stored) -> None:
        assert self.store is not None
        try:
            self.store.save(stored)
        except (Error, OSError) as problem:
            log("new session could not be stored", level="error", problem=str(problem))
            raise ProblemError(
                507, "The new session could not be stored: the disk of the server is full or cannot be written.", 30
            ) from None

    def _judged(self, session: Session, entry: Entry, prediction: Prediction) -> None:
        self.judged += 1
        self.undecided += prediction.undecided
        if prediction.probability is not None:
            self.with_probability += 1
            self.probability_sum += prediction.probability
        self.guard_events += len(prediction.events)
        for event in prediction.events:
            log(
                "guard",
                level="warning",
                session=session.id,
                step=session.steps,
                kind=event.kind,
                sentence=event.sentence,
            )
        member = self._members.get(session.id)
        if member is not None:
            if entry.thumbnail is not None and prediction.verdict is not None:
                member.kept.add(session.steps, prediction, entry.thumbnail)
            self.keeper.stepped(session)

    def _saved(self, session: Session) -> None:
        member = self._members.get(session.id)
        if member is not None:
            member.line.move()

    def _lost(self, session: Session) -> None:
        self._leaving = asyncio.create_task(self.drop(session.id))
