"""The sessions of this process: created, restored, released, deleted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from ...adapter import Adapter
from ...core.errors import translate_errors
from ...core.types import Error
from ...live.pool import StreamPool
from ..logs import log
from ..problems import ProblemError, served_elsewhere, shutting_down, unknown_session
from ..settings import Settings
from .build import restored
from .history import Totals
from .names import checked_name
from .saving import Arrivals, Shared
from .session import Session
from .snapshot import unpack
from .store import SessionStore, new_id

T = TypeVar("T")


class SessionRegistry:
    """Sessions by id. Created and used on the event loop; long work is done by `workers`."""

    def __init__(
        self, pool: StreamPool, settings: Settings, store: SessionStore | None, workers: ThreadPoolExecutor
    ) -> None:
        self.pool, self.settings, self.store, self._workers = pool, settings, store, workers
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ostta-writer")
        self.totals = Totals()
        self._shared = Shared(pool, settings, store, Arrivals(self._loop), workers, self._writer, self.totals)
        self._sessions: dict[str, Session] = {}
        # Sessions that are being created or restored; they count for the limit.
        self._expected = 0
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self.stopping = False

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, id: str) -> bool:
        return id in self._sessions

    def __getitem__(self, id: str) -> Session:
        """Return the session, or raise a problem with status 404."""
        session = self._sessions.get(id)
        if session is None or session.lost:
            raise unknown_session(id)
        return session

    def sessions(self) -> list[Session]:
        """Return all sessions, the oldest first."""
        return sorted(self._sessions.values(), key=lambda session: (session.created, session.id))

    # --- new sessions -------------------------------------------------------------------------------------------------
    async def new(self, make: Callable[[], Adapter], name: Any) -> Session:
        """Create a session with the adapter that `make` returns, and store it before its id is known to a client."""
        checked = None if name is None else checked_name(name)
        self._require_room()
        self._expected += 1
        try:
            adapter = await self.work(make)
            id = new_id()
            session = Session(id, checked or f"session {id[:6]}", adapter, self._shared)
            try:
                await session.create()
            except Error as problem:
                log("new session could not be stored", level="error", problem=str(problem))
                raise ProblemError(
                    507, "The new session could not be stored: the log of the server says why.", 30
                ) from None
            await self._add(session)
        finally:
            self._expected -= 1
        return session

    async def adopt(self, id: str) -> None:
        """Bring a stored session into this process, unless it is here already."""
        if id in self._sessions:
            return
        if id not in self._adopting:
            self._adopting[id] = asyncio.create_task(self._adopt(id))
            self._adopting[id].add_done_callback(lambda _: self._adopting.pop(id))
        await asyncio.shield(self._adopting[id])

    async def adopt_all(self) -> None:
        """Bring all stored sessions into this process. A session that cannot be restored stays in the store."""
        assert self.store is not None
        stored, most = await self.work(self.store.ids), self.settings.limits.sessions
        if len(stored) > most:
            log("more sessions are stored than may be created", level="warning", stored=len(stored), max_sessions=most)
        self.totals.sessions_unreadable = 0
        for id in stored:
            try:
                await self.adopt(id)
            except Error as problem:
                self.totals.sessions_unreadable += 1
                log("session could not be restored", level="error", session=id, problem=str(problem))
        log("sessions restored", sessions=len(self), unreadable=self.totals.sessions_unreadable)

    async def _adopt(self, id: str) -> None:
        store = self.store
        if store is None:
            raise unknown_session(id)
        # The limit is for new sessions only.
        self._require_running()
        self._expected += 1
        try:
            stored = await self.work(lambda: store.load(id))
            # A stored session was allowed when it was created, whatever the limit is now.
            limits = replace(self.settings.limits, session_bytes=sys.maxsize)
            try:
                adapter = await self.work(lambda: restored(unpack(stored.state), self.pool.backbone, limits))
                name = stored.about.get("name")
                session = Session(id, name if isinstance(name, str) else f"session {id[:6]}", adapter, self._shared)
                message = f"What is stored about the session {id} is damaged: restore the store from a backup."
                with translate_errors("snapshot-damaged", message):
                    session.restore(stored)
                await self._add(session)
            except BaseException:
                await self.work(lambda: store.release(id))
                raise
        finally:
            self._expected -= 1

    # --- the end of a session -----------------------------------------------------------------------------------------
    async def release(self, id: str) -> None:
        """Store a session and remove it from this process, so that another one can adopt it.

        If it cannot be stored, it stays here, and an Error says so.
        """
        session = self[id]
        moved = ProblemError(503, "The session is moving to another process: send the request again.", 1)
        session.close(moved)
        try:
            await session.drained()
            if session.dirty:
                await session.save()
        except Error:
            session.open()
            raise
        await self._remove(session, moved)
        if self.store is not None:
            store = self.store
            await self.work(lambda: store.release(id))

    async def drop(self, id: str) -> None:
        """Remove a session from this process without storing it: another process has its lease."""
        session = self._sessions.get(id)
        if session is not None:
            await self._remove(session, served_elsewhere())

    async def delete(self, id: str) -> None:
        """Delete a session for good. If the store cannot delete it, it stays here: a restart would bring it back."""
        session, gone = self[id], ProblemError(404, f"The session {id!r} was deleted.")
        session.close(gone)
        try:
            await session.delete()
        except Error as problem:
            session.open()
            log("session could not be deleted", level="error", session=id, problem=str(problem))
            raise ProblemError(507, "The session could not be deleted: the store cannot be written.", 30) from None
        if id in self._sessions:
            await self._remove(session, gone)

    async def close(self) -> list[str]:
        """Answer the images in the pool, store all sessions, and return the ids of those that could not be stored."""
        self.stopping = True
        for session in self.sessions():
            session.close(shutting_down())
            session.history.changed()
        await self.work(self.pool.close)
        await asyncio.sleep(0)  # handles the last answers of the pool
        unsaved = []
        for session in self.sessions():
            try:
                await session.save_last()
            except Error as problem:
                unsaved.append(session.id)
                log("session could not be saved", level="error", session=session.id, problem=str(problem))
        await asyncio.to_thread(self._writer.shutdown)
        return unsaved

    async def tick(self) -> None:
        """Start saves that are due, and drop sessions that another process has taken; called about once a second."""
        for session in self.sessions():
            if session.lost:
                await self.drop(session.id)
            else:
                session.save_if_due()

    # --- internals ----------------------------------------------------------------------------------------------------
    async def work(self, function: Callable[[], T]) -> T:
        """Run a function on a worker thread."""
        return await self._loop.run_in_executor(self._workers, function)

    async def _add(self, session: Session) -> None:
        await self.work(lambda: self.pool.add(session.id, session.adapter))
        self._sessions[session.id] = session

    async def _remove(self, session: Session, why: ProblemError) -> None:
        self._sessions.pop(session.id, None)
        session.end(why)
        await self.work(lambda: self.pool.remove(session.id))

    def _require_running(self) -> None:
        if self.stopping:
            raise shutting_down()

    def _require_room(self) -> None:
        self._require_running()
        most = self.settings.limits.sessions
        if len(self) + self._expected >= most:
            raise ProblemError(503, f"There are {len(self)} sessions, and the limit of this server is {most}.", 30)
