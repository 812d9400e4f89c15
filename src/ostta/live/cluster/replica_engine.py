"""The engine inside a replica: the engine of one process, whose sessions come and go with their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.types import Error
from ..pool import StreamPool
from ..server.local import LocalEngine
from ..server.logs import log
from ..server.problems import ProblemError
from ..server.session import Session
from ..server.settings import Settings
from .leased_store import LeasedStore
from .leases import StaleError
from .turns import Turns

T = TypeVar("T")
# Seconds between two looks at whether the images of a session that is to leave have been answered.
_LOOK = 0.01


class ReplicaEngine(LocalEngine):
    """Sessions are opened when they are asked for, and leave after a snapshot. `with_session` is how all of them are used."""

    def __init__(self, pool: StreamPool, settings: Settings, store: LeasedStore) -> None:
        super().__init__(pool, settings, store)
        self.leased = store
        self._turns = Turns()

    async def with_session(self, id: str, use: Callable[[], Awaitable[T]]) -> T:
        """`use` the session while nobody else does, and while this replica holds its lease; HeldError where another does."""
        async with self._turns.of(id):
            await self._open(id)
            return await use()

    async def leave(self, id: str) -> None:
        """Store the session and give its lease back. Where it cannot be stored, an Error says so, and it stays."""
        async with self._turns.of(id):
            session = self._sessions.get(id)
            if session is None:
                return
            line = self._lines[id]
            while len(line):
                await asyncio.sleep(_LOOK)
            if self.leased.is_held(id) and (session.steps != session.saved_steps or session.problem is not None):
                try:
                    await self._keeper.changed(session)
                except StaleError:
                    log("lease was lost", level="warning", session=id)
            await self._drop(session)
            await self._work(lambda: self.leased.release(id))

    def lost(self, id: str) -> None:
        """Another process has taken the session: what this one has of it is not written any more. From any thread."""
        log("lease was lost", level="warning", session=id)
        asyncio.run_coroutine_threadsafe(self._after_loss(id), self._loop)

    async def leave_all(self) -> None:
        """Store all sessions and give all leases back."""
        for id in list(self._sessions):
            try:
                await self.leave(id)
            except Error as problem:
                log("session could not be saved", level="error", session=id, problem=str(problem))

    # --- inside -------------------------------------------------------------------------------------------------------
    async def _open(self, id: str) -> None:
        session = self._sessions.get(id)
        if session is not None:
            if self.leased.is_held(id):
                return
            await self._drop(session)
        self.leased.require_free(id)
        try:
            await self._restore(id)
        except BaseException:
            self.leased.release(id)
            raise

    async def _restore(self, id: str) -> None:
        stored = await self._work(lambda: self.leased.load(id))
        adapter = await self._work(lambda: self._restored(stored.state))
        name = stored.about.get("name")
        session = Session(
            id, name if isinstance(name, str) else id[:6], adapter, self.settings.clock, self.settings.points
        )
        session.take_over(stored.about)
        await self._work(lambda: self.pool.add(id, adapter))
        self._add(session)

    async def _after_loss(self, id: str) -> None:
        session = self._sessions.get(id)
        if session is not None and not self.leased.is_held(id):
            await self._drop(session)

    async def _drop(self, session: Session) -> None:
        """Forget the session here; what is stored of it stays."""
        if self._sessions.pop(session.id, None) is None:
            return
        self._lines.pop(session.id).end(ProblemError(503, "The session has moved to another replica: send again.", 1))
        self._kept.pop(session.id, None)
        self._keeper.leave(session)
        # Whoever follows it looks for it elsewhere.
        session.deleted = True
        session.changed()
        await self._work(lambda: self.pool.remove(session.id))
