"""A replica on Ray Serve: one pool, its sessions, and the calls of the router."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import torch

from ...config.plugins import from_file, names_file
from ...core.types import Error
from ...live.pool import StreamPool
from ..engine import SentEvent
from ..local import LocalEngine
from ..logs import log
from ..problems import ProblemError
from ..sessions.store import HeldError, LostError, MissingError, SessionStore
from ..settings import Settings

# Seconds between two updates of what the overview shows of this replica.
TICK = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Configuration of every replica. `store` is a PostgreSQL address, or the folder of a SQLite file."""

    backbone: str
    store: str | Path
    settings: Settings
    device: str | None = None
    dtype: str | None = None
    threads: int = 1
    lease_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call: a value, or a problem. `held`: another replica has the session, and nothing was done."""

    value: Any = None
    problem: ProblemError | Error | None = None
    held: bool = False


class SessionLocks:
    """Locks by session: one request at a time, in the order of arrival. A lock that nobody holds is dropped."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, id: str) -> asyncio.Lock:
        return self._locks.setdefault(id, asyncio.Lock())


class ReplicaEngine(LocalEngine):
    """The engine of a replica. Sessions are adopted when a request needs them, and leave after a snapshot."""

    def __init__(self, pool: StreamPool, settings: Settings, store: SessionStore) -> None:
        super().__init__(pool, settings, store, restore=False)
        self.leases = store
        self._locks = SessionLocks()

    async def with_session(self, id: str, use: Callable[[], Awaitable[T]]) -> T:
        """Use a session alone, while this replica has its lease. Raises `HeldError` if another process has it."""
        registry = self.registry
        async with self._locks[id]:
            if id in registry and not await registry.work(lambda: self.leases.is_held(id)):
                log("lease was lost", level="warning", session=id)
                await registry.drop(id)
            await registry.adopt(id)
            return await use()

    async def leave(self, id: str) -> None:
        """Store a session and give its lease back. If it cannot be stored, it stays, and an Error says so."""
        async with self._locks[id]:
            if id in self.registry:
                try:
                    await self.registry.release(id)
                except (LostError, ProblemError):  # lost by this save, or before
                    await self.registry.drop(id)

    async def leave_all(self) -> None:
        """Store all sessions and give all leases back."""
        for session in self.registry.sessions():
            try:
                await self.leave(session.id)
            except Error as problem:
                log("session could not be saved", level="error", session=session.id, problem=str(problem))


class LoadedSession:
    """A session in Ray's list of the models that this replica has loaded. Ray calls its `__del__` to evict it."""

    def __init__(self, engine: ReplicaEngine, id: str) -> None:
        async def leave() -> None:
            try:
                await engine.leave(id)
            except Error as problem:
                # The session stays here with its lease.
                log("session could not be evicted", level="error", session=id, problem=str(problem))

        # An attribute of the object, not of the class: the interpreter itself would call a method of the class.
        setattr(self, "__del__", leave)  # noqa: B010


class ReplicaBase:
    """A replica without the decorators of Ray."""

    def __init__(self, config: ReplicaConfig, name: str) -> None:
        torch.set_num_threads(config.threads)
        self.config, self.name = config, name
        backbone = from_file(config.backbone) if names_file(config.backbone) else config.backbone
        pool = StreamPool(backbone, queue=config.settings.limits.waiting, device=config.device, dtype=config.dtype)
        self.store = SessionStore(config.store, name=name, lease_seconds=config.lease_seconds)
        # The router limits the number of sessions; Ray limits how many of them are here.
        settings = replace(config.settings, limits=replace(config.settings.limits, sessions=2**31))
        self.engine = ReplicaEngine(pool, settings, self.store)
        self._starting = asyncio.Lock()
        self._publishing: asyncio.Task[None] | None = None

    async def tenant(self, id: str) -> LoadedSession:
        """Return the entry of a session in Ray's list; the decorator of Ray makes it a cache."""
        return LoadedSession(self.engine, id)

    # --- called by the router -----------------------------------------------------------------------------------------
    async def call(self, function: str, id: str, *arguments: Any) -> CallResult:
        """Call a method of `Engine` that concerns one session."""

        async def use() -> Any:
            # Checked first: Ray notes this replica as the one with the session as soon as `tenant` is called.
            if id not in self.engine.registry:
                await asyncio.to_thread(self.store.require_free, id)
            await self.tenant(id)
            return await self.engine.with_session(id, partial(getattr(self.engine, function), id, *arguments))

        return await self._run(use)

    async def make(self, function: str, *arguments: Any) -> CallResult:
        """Call `create` or `create_from`; this replica has the new session."""

        async def create() -> Any:
            session = await getattr(self.engine, function)(*arguments)
            await self.tenant(session["id"])
            return session

        return await self._run(create)

    async def about(self, function: str) -> CallResult:
        """Call `ready` or `info`, which concern no session."""
        return await self._run(getattr(self.engine, function))

    async def follow(self, id: str, after: int | None) -> AsyncIterator[SentEvent]:
        """Yield the events of a session while it is here."""
        await self._started()
        # The session may be deleted or evicted at any time.
        with suppress(ProblemError):
            if id in self.engine.registry:
                async for event in self.engine.follow(id, after):
                    yield event

    async def close(self) -> None:
        """Store all sessions and give all leases back."""
        if self._publishing is not None:
            self._publishing.cancel()
            await self.engine.leave_all()
            await self.engine.stop()
        await asyncio.to_thread(self.store.close)

    # --- internals ----------------------------------------------------------------------------------------------------
    async def _run(self, function: Callable[[], Awaitable[Any]]) -> CallResult:
        try:
            await self._started()
            return CallResult(await function())
        except ProblemError as problem:
            return CallResult(problem=problem)
        except HeldError:
            return CallResult(held=True)
        except MissingError as problem:
            return CallResult(problem=ProblemError(404, str(problem)))
        except LostError as problem:
            return CallResult(problem=ProblemError(503, str(problem), 1))
        except Error as problem:
            if problem.code == "store-failed":
                return CallResult(problem=ProblemError(503, "The store of this server cannot be used at this time.", 5))
            return CallResult(problem=problem)

    async def _started(self) -> None:
        async with self._starting:
            if self._publishing is None:
                await self.engine.start()
                self._publishing = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        """Publish what the overview shows of this replica, for all routers."""
        last: dict[str, Any] = {}
        while True:
            content = {"sessions": await self.engine.sessions(), "counts": await self.engine.counts()}
            if content != last:
                try:
                    await asyncio.to_thread(self.store.publish, content)
                    last = content
                except Error as problem:
                    log("overview could not be published", level="warning", problem=str(problem))
            await asyncio.sleep(TICK)


def deployment(serve: Any, config: ReplicaConfig, replicas: int, sessions: int, seconds: float) -> Any:
    """Return what Ray Serve runs: `replicas` processes with at most `sessions` sessions each."""

    class Replica(ReplicaBase):
        def __init__(self) -> None:
            replica = serve.get_replica_context().replica_id.unique_id
            super().__init__(config, f"replica {replica} {os.getpid()}")

        @serve.multiplexed(max_num_models_per_replica=sessions)  # type: ignore[untyped-decorator]
        async def tenant(self, id: str) -> LoadedSession:
            return await super().tenant(id)

        async def __del__(self) -> None:
            await self.close()

    return serve.deployment(
        Replica,
        name="sessions",
        num_replicas=replicas,
        # Event streams are requests too. The router and the engine limit how many images wait.
        max_ongoing_requests=100_000,
        graceful_shutdown_timeout_s=seconds,
        health_check_period_s=2,
        health_check_timeout_s=30,
        ray_actor_options={
            "num_cpus": config.threads,
            "num_gpus": 1 if (config.device or "").startswith("cuda") else 0,
        },
    ).bind()
