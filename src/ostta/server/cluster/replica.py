"""A replica on Ray Serve: one pool, its sessions, and what the router asks of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...config.plugins import from_file, names_file
from ...core.types import Error
from ...io import make_folder, write_atomically
from ...live.pool import StreamPool
from ..engine import Told
from ..logs import log
from ..problems import ProblemError
from ..settings import Settings
from ..store import LostError
from .holder import Holder
from .leased_store import HOLDERS, LeasedStore
from .leases import HeldError, MissingError
from .replica_engine import ReplicaEngine

LIVE = "live"
# Seconds between two looks at whether the overview has changed.
TICK = 1.0


@dataclass(frozen=True, slots=True)
class Replicated:
    """What every replica is made of; a name of a backbone, as each loads its own."""

    backbone: str
    folder: Path
    settings: Settings
    device: str | None = None
    dtype: str | None = None
    threads: int = 1
    term: float = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: a value, or why there is none. `held`: another replica has the session, and nothing was done."""

    value: Any = None
    problem: ProblemError | None = None
    error: str | None = None
    held: str | None = None


class Tenant:
    """A session in Ray's list of what this replica has loaded. Ray calls its `__del__` when it has to make room."""

    def __init__(self, engine: ReplicaEngine, id: str) -> None:
        async def leave() -> None:
            try:
                await engine.leave(id)
            except Error as problem:
                # It stays, with its lease, and is used from here again.
                log("session could not leave", level="error", session=id, problem=str(problem))

        # Of the object and not of the class: the interpreter calls only those of classes, at moments of its own.
        setattr(self, "__del__", leave)  # noqa: B010


class ReplicaBase:
    """All of a replica but for `tenant`, which Ray wraps."""

    def __init__(self, made: Replicated, name: str) -> None:
        torch.set_num_threads(made.threads)
        self.made, self.name = made, name
        backbone = from_file(made.backbone) if names_file(made.backbone) else made.backbone
        pool = StreamPool(backbone, queue=made.settings.limits.waiting, device=made.device, dtype=made.dtype)
        holder = Holder(made.folder / HOLDERS, name, term=made.term).start()
        self.store = LeasedStore(made.folder, name, holder)
        # How many there may be is for the router to say: here it is Ray that makes room.
        settings = replace(made.settings, limits=replace(made.settings.limits, sessions=2**31))
        self.engine = ReplicaEngine(pool, settings, self.store)
        self._starting = asyncio.Lock()
        self._publishing: asyncio.Task[None] | None = None

    async def tenant(self, id: str) -> Tenant:
        """The session in Ray's list; wrapped by Ray."""
        return Tenant(self.engine, id)

    # --- what the router calls ------------------------------------------------------------------------------------------
    async def call(self, what: str, id: str, *arguments: Any) -> Answer:
        """A function of `Engine` that concerns one session."""

        async def use() -> Any:
            return await getattr(self.engine, what)(id, *arguments)

        async def told() -> Answer:
            # Ray would note this replica as one that has the session before it is known whether it may.
            if id not in self.store.ids():
                self.store.require_free(id)
            await self.tenant(id)
            return Answer(await self.engine.with_session(id, use))

        return await self._answered(told)

    async def make(self, what: str, *arguments: Any) -> Answer:
        """`create` or `create_from`: the new session is this replica's."""

        async def told() -> Answer:
            session = await getattr(self.engine, what)(*arguments)
            await self.tenant(session["id"])
            return Answer(session)

        return await self._answered(told)

    async def about(self, what: str) -> Answer:
        """`ready` or `info`, which concern no session."""

        async def told() -> Answer:
            return Answer(await getattr(self.engine, what)())

        return await self._answered(told)

    async def follow(self, id: str, after: int | None) -> AsyncIterator[Told]:
        """The events of a session while it is here; none where it is not."""
        await self._started()
        # One that is deleted just now is not there any more.
        with suppress(ProblemError):
            if self.store.is_held(id):
                async for told in self.engine.follow(id, after):
                    yield told

    async def process(self) -> int:
        """The number of this replica's process."""
        return os.getpid()

    async def close(self) -> None:
        """Store all and give all leases back."""
        if self._publishing is not None:
            self._publishing.cancel()
            await self.engine.leave_all()
            await self.engine.stop()
        self.store.close()
        self._live_file().unlink(missing_ok=True)

    # --- inside -------------------------------------------------------------------------------------------------------
    async def _answered(self, told: Any) -> Answer:
        try:
            await self._started()
            answer: Answer = await told()
            return answer
        except ProblemError as problem:
            return Answer(problem=problem)
        except HeldError as problem:
            return Answer(held=problem.holder)
        except MissingError as problem:
            return Answer(problem=ProblemError(404, str(problem)))
        except LostError as problem:
            return Answer(problem=ProblemError(503, str(problem), 1))
        except Error as problem:
            return Answer(error=str(problem))

    async def _started(self) -> None:
        async with self._starting:
            if self._publishing is None:
                await self.engine.start()
                make_folder(self._live_file().parent)
                self._publishing = asyncio.create_task(self._publish())

    def _live_file(self) -> Path:
        return self.made.folder / LIVE / f"{self.store.holder.key}.json"

    def _tidy(self) -> None:
        """Take away what replicas that were killed left for the overview."""
        for path in self._live_file().parent.glob("*.json"):
            if self.store.holder.is_gone(path.stem):
                path.unlink(missing_ok=True)

    async def _publish(self) -> None:
        """What the overview shows of this replica, for every router to read."""
        last = b""
        await asyncio.to_thread(self._tidy)
        while True:
            content = {"sessions": await self.engine.sessions(), "counts": await self.engine.counts()}
            text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
            if text != last:
                try:
                    await asyncio.to_thread(write_atomically, self._live_file(), text)
                    last = text
                except Error as problem:
                    log("overview could not be written", level="warning", problem=str(problem))
            await asyncio.sleep(TICK)


def deployment(serve: Any, made: Replicated, replicas: int, sessions: int, seconds: float) -> Any:
    """What Ray Serve runs: `replicas` processes that hold at most `sessions` sessions each."""

    class Replica(ReplicaBase):
        def __init__(self) -> None:
            super().__init__(made, str(serve.get_replica_context().replica_id.unique_id))

        @serve.multiplexed(max_num_models_per_replica=sessions)  # type: ignore[untyped-decorator]
        async def tenant(self, id: str) -> Tenant:
            return await super().tenant(id)

        async def __del__(self) -> None:
            await self.close()

    return serve.deployment(
        Replica,
        name="sessions",
        num_replicas=replicas,
        # Those that follow events are requests too; how many images wait is bounded by the router and by the engine.
        max_ongoing_requests=100_000,
        graceful_shutdown_timeout_s=seconds,
        health_check_period_s=2,
        health_check_timeout_s=30,
        ray_actor_options={
            "num_cpus": made.threads,
            "num_gpus": 1 if (made.device or "").startswith("cuda") else 0,
        },
    ).bind()
