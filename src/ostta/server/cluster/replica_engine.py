"""The engine inside a replica: the engine of one process, whose sessions come and go with their leases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.types import Error
from ...live.pool import StreamPool
from ..local import LocalEngine
from ..logs import log
from ..settings import Settings
from ..store import LostError
from .leased_store import LeasedStore
from .turns import Turns

T = TypeVar("T")


class ReplicaEngine(LocalEngine):
    """Sessions are adopted when they are asked for, and leave after a snapshot. `with_session` is how all of them are used."""

    def __init__(self, pool: StreamPool, settings: Settings, store: LeasedStore) -> None:
        super().__init__(pool, settings, store, restore=False)
        self.leased = store
        self._turns = Turns()

    async def with_session(self, id: str, use: Callable[[], Awaitable[T]]) -> T:
        """`use` the session while nobody else does, and while this replica holds its lease; HeldError where another does."""
        async with self._turns.of(id):
            if id in self._sessions and not self.leased.is_held(id):
                log("lease was lost", level="warning", session=id)
                await self._sessions.drop(id)
            try:
                await self.adopt(id)
            except BaseException:
                # A lease on what could not be restored is of no use.
                await self._sessions.work(lambda: self.leased.release(id))
                raise
            return await use()

    async def leave(self, id: str) -> None:
        """Store the session and give its lease back. Where it cannot be stored, an Error says so, and it stays."""
        async with self._turns.of(id):
            if id not in self._sessions:
                return
            try:
                await self.release(id)
            except LostError:
                await self._sessions.drop(id)
            await self._sessions.work(lambda: self.leased.release(id))

    async def leave_all(self) -> None:
        """Store all sessions and give all leases back."""
        for session in self._sessions.sessions():
            try:
                await self.leave(session.id)
            except Error as problem:
                log("session could not be saved", level="error", session=session.id, problem=str(problem))
