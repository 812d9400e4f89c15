"""The engine of a cluster: it routes requests to the replicas that have their sessions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from ...core.types import Error
from ...ray_cluster import ADDRESS, connect, require_ray
from ..engine import Json, Sent, SentEvent
from ..logs import log
from ..problems import MAYBE_COUNTED, ProblemError, shutting_down, unknown_session
from ..sessions.images import require_room
from ..sessions.store import MissingError, SessionStore, is_id, new_id
from .replica import CallResult, ReplicaConfig, SessionLocks, deployment

# Seconds between two tries while another replica has a session: the first pause, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
# Seconds between two updates of the overview, or two looks for a session that is followed and in no replica.
TICK = 1.0


class RayEngine:
    """Implements `Engine`. Several processes may route to the same replicas; the first one starts and ends them.

    `sessions` is the maximum number of sessions in one replica; further sessions are only in the store.
    """

    def __init__(self, config: ReplicaConfig, *, replicas: int = 2, sessions: int = 256) -> None:
        if replicas < 1 or sessions < 1:
            raise Error(
                f"{replicas} replicas with {sessions} sessions each are not possible: use at least one of both.",
                code="replicas-invalid",
            )
        self.config, self.replicas, self._most = config, replicas, sessions
        self.settings = config.settings
        self._locks = SessionLocks()
        # Images in progress by session.
        self._waiting: Counter[str] = Counter()
        self._followed: set[Any] = set()
        self._stopping = self._joined = False
        # Routers with the same store and backbone share replicas.
        digest = hashlib.sha256(f"{config.store}\0{config.backbone}".encode()).hexdigest()
        self._app = f"ostta-{digest[:12]}"
        # The lease of a replica that has died must expire, and its successor needs time to load the model.
        self.patience = max(config.lease_seconds * 2, 30.0)

    # --- start and stop -----------------------------------------------------------------------------------------------
    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = await asyncio.to_thread(
            SessionStore, self.config.store, name="router", lease_seconds=self.config.lease_seconds
        )
        await asyncio.to_thread(self._deploy)

    def _deploy(self) -> None:
        self._ray = require_ray()
        from ray import serve

        # By default, Ray gives replicas a lower priority than every other program of the machine.
        os.environ.setdefault("RAY_worker_niceness", "0")
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        # One more core is for the processes of Ray Serve itself.
        connect(self._ray, self.replicas * self.config.threads + 1)
        if isinstance(self.config.store, Path) and sum(node["Alive"] for node in self._ray.nodes()) > 1:
            raise Error(
                "The Ray cluster has several machines, which cannot share a SQLite file: give a PostgreSQL store "
                "with --store.",
                code="store-invalid",
            )
        serve.start(proxy_location="Disabled")
        self._serve = serve
        try:
            self._handle = serve.get_app_handle(self._app)
            self._joined = True
            log("joined replicas that run already", app=self._app)
        except serve.exceptions.RayServeException:
            application = deployment(serve, self.config, self.replicas, self._most, self.settings.limits.answer_seconds)
            self._handle = serve.run(application, name=self._app, route_prefix=None)

    async def stop(self) -> None:
        self._stopping = True
        for stream in list(self._followed):
            stream.cancel()
        await asyncio.to_thread(self._take_down)

    def _take_down(self) -> None:
        if not self._joined:
            # Replicas store their sessions and give their leases back first.
            self._serve.delete(self._app)
        if not os.environ.get(ADDRESS):
            # A cluster that was there before may have other applications.
            self._serve.shutdown()
        self._ray.shutdown()
        self._store.close()

    async def ready(self) -> None:
        if self._stopping:
            raise shutting_down()
        await self._read_any("about", "ready")

    # --- reading ------------------------------------------------------------------------------------------------------
    async def info(self) -> Json:
        info: Json = await self._read_any("about", "info")
        return {**info, "engine": "ray", "replicas": self.replicas, "limits": self.settings.limits.to_dict()}

    async def counts(self) -> dict[str, float]:
        parts, sessions = await asyncio.to_thread(lambda: (self._store.published(), self._store.count()))
        total: dict[str, float] = {"replicas": len(parts)}
        for part in parts:
            for name, value in part["counts"].items():
                total[name] = total.get(name, 0) + value
        return {**total, "sessions_open": total.get("sessions", 0), "sessions": sessions}

    async def sessions(self) -> list[Json]:
        """Return what replicas published last; sessions in no replica are shown as they were stored."""
        parts, stored = await asyncio.to_thread(lambda: (self._store.published(), self._store.all_about()))
        sessions = {each["id"]: each for part in parts for each in part["sessions"] if each["id"] in stored}
        for id, about in stored.items():
            shown = about.get("shown")
            if id not in sessions and isinstance(shown, dict) and shown.get("id") == id:
                sessions[id] = {**shown, "images_per_second": 0.0}
        return sorted(sessions.values(), key=lambda session: (session["created"], session["id"]))

    async def session(self, id: str) -> Json:
        session: Json = await self._read("session", id)
        return session

    async def name(self, id: str) -> str:
        try:
            name = (await asyncio.to_thread(self._store.about, id)).get("name")
        except MissingError as problem:
            raise ProblemError(404, str(problem)) from None
        return name if isinstance(name, str) else id[:6]

    async def recent(self, id: str, limit: int) -> Json:
        history: Json = await self._read("recent", id, limit)
        return history

    async def kept(self, id: str, which: str) -> list[Json]:
        images: list[Json] = await self._read("kept", id, which)
        return images

    async def state(self, id: str) -> bytes:
        state: bytes = await self._read("state", id)
        return state

    # --- sessions -----------------------------------------------------------------------------------------------------
    async def create(self, request: Json) -> Json:
        return await self._create("create", request)

    async def create_from(self, state: bytes, name: str | None) -> Json:
        return await self._create("create_from", state, name)

    async def rename(self, id: str, name: str) -> Json:
        session: Json = await self._change("rename", id, name)
        return session

    async def delete(self, id: str) -> None:
        await self._change("delete", id)

    async def replace_state(self, id: str, state: bytes) -> Json:
        session: Json = await self._change("replace_state", id, state)
        return session

    async def act(self, id: str, verb: str) -> Json:
        acted: Json = await self._change("act", id, verb)
        return acted

    async def images(
        self, id: str, images: Sequence[Sent], learn: bool, evidence: bool, key: str | None = None
    ) -> list[Json]:
        require_room(len(images), self._waiting[id], self._waiting.total(), self.settings.limits)
        self._waiting[id] += len(images)
        try:
            # Keys are stored with the state that learned from their images, so that another replica knows both or
            # neither.
            repeat = key is not None or not learn
            answers: list[Json] = await self._change("images", id, list(images), learn, evidence, key, repeat=repeat)
            return answers
        finally:
            self._waiting[id] -= len(images)
            if not self._waiting[id]:
                del self._waiting[id]

    # --- following ----------------------------------------------------------------------------------------------------
    async def follow(self, id: str, after: int | None) -> AsyncIterator[SentEvent]:
        """Follow a session from replica to replica. While no replica has it, nothing happens to it."""
        while not self._stopping and await asyncio.to_thread(self._store.exists, id):
            stream = self._handle.options(multiplexed_model_id=id, stream=True).follow.remote(id, after)
            self._followed.add(stream)
            try:
                async for event in stream:
                    after = event.number
                    yield event
            except (self._ray.exceptions.RayError, asyncio.CancelledError) as problem:
                if isinstance(problem, asyncio.CancelledError) and not self._stopping:
                    raise
                log("event stream was interrupted", session=id, problem=type(problem).__name__)
            finally:
                # Otherwise the replica would continue to send.
                self._followed.discard(stream)
                stream.cancel()
            if await asyncio.to_thread(self._store.exists, id):
                await asyncio.sleep(TICK)

    async def follow_all(self) -> AsyncIterator[list[Json]]:
        seen: list[Json] | None = None
        while not self._stopping:
            now = await self.sessions()
            if now != seen:
                seen = now
                yield now
            await asyncio.sleep(TICK)

    # --- internals ----------------------------------------------------------------------------------------------------
    async def _read_any(self, function: str, *arguments: Any) -> Any:
        """Read from any replica; repeated if it dies."""
        return await self._retried(lambda: getattr(self._handle, function).remote(*arguments), repeat=True)

    async def _create(self, function: str, *arguments: Any) -> Json:
        most = self.settings.limits.sessions
        if self._stopping:
            raise shutting_down(30)
        if await asyncio.to_thread(self._store.count) >= most:
            raise ProblemError(503, f"There are {most} sessions, which is the limit of this server.", 30)
        # Ray sends an unknown id to the replica with the fewest sessions.
        handle = self._handle.options(multiplexed_model_id=new_id())
        session: Json = await self._retried(lambda: handle.make.remote(function, *arguments), repeat=False)
        return session

    async def _read(self, function: str, id: str, *arguments: Any) -> Any:
        """Read from a session; repeated if a replica dies."""
        return await self._routed(function, id, arguments, repeat=True)

    async def _change(self, function: str, id: str, *arguments: Any, repeat: bool = False) -> Any:
        """Change a session; changes are sent one after the other, so that they stay in order."""
        async with self._locks[id]:
            return await self._routed(function, id, arguments, repeat)

    async def _routed(self, function: str, id: str, arguments: tuple[Any, ...], repeat: bool) -> Any:
        if not is_id(id):
            raise unknown_session(id)
        handle = self._handle.options(multiplexed_model_id=id)
        return await self._retried(lambda: handle.call.remote(function, id, *arguments), repeat=repeat)

    async def _retried(self, send: Callable[[], Awaitable[CallResult]], repeat: bool) -> Any:
        """Repeat a call until the replica with the lease answers; other replicas change nothing.

        `repeat` also repeats a call if the replica dies while it answers.
        """
        until, pause = self._loop.time() + self.patience, FIRST_PAUSE
        while True:
            try:
                result = await send()
            except self._ray.exceptions.RayError as problem:
                log("replica was lost", level="warning", problem=type(problem).__name__)
                if not repeat:
                    raise ProblemError(
                        409,
                        "The replica of this session ended during the request, which may have been counted or not.",
                        1,
                        MAYBE_COUNTED,
                    ) from None
            else:
                if result.problem is not None:
                    raise result.problem
                if not result.held:
                    return result.value
            if self._stopping or self._loop.time() > until:
                raise ProblemError(
                    503,
                    "The session is held by another replica, or by one that has ended: send the request again later.",
                    5,
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
