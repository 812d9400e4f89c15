"""The engine inside a replica: the engine of one process, whose sessions come and go with their leases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.types import Error
from ...live.pool import StreamPool
from ..local import LocalEngine
from ..logs import log
from ..sessions.store import LostError, SessionStore
from ..settings import Settings
from .turns import Turns

T = TypeVar("T")


class ReplicaEngine(LocalEngine):
    """Sessions are adopted when a request needs them, and leave after a snapshot. Requests use them through `with_session`."""

    def __init__(self, pool: StreamPool, settings: Settings, store: SessionStore) -> None:
        super().__init__(pool, settings, store, restore=False)
        self.leases = store
        self._turns = Turns()

    async def with_session(self, id: str, use: Callable[[], Awaitable[T]]) -> T:
        """Use a session alone, while this replica has its lease. Raises `HeldError` if another process has it."""
        registry = self.sessions_here
        async with self._turns.of(id):
            if id in registry and not await registry.work(lambda: self.leases.is_held(id)):
                log("lease was lost", level="warning", session=id)
                await registry.drop(id)
            await self.adopt(id)
            return await use()

    async def leave(self, id: str) -> None:
        """Store a session and give its lease back. If it cannot be stored, it stays, and an Error says so."""
        async with self._turns.of(id):
            if id in self.sessions_here:
                try:
                    await self.release(id)
                except LostError:
                    await self.sessions_here.drop(id)

    async def leave_all(self) -> None:
        """Store all sessions and give all leases back."""
        for session in self.sessions_here.sessions():
            try:
                await self.leave(session.id)
            except Error as problem:
                log("session could not be saved", level="error", session=session.id, problem=str(problem))
