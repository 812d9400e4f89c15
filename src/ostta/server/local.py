"""The engine of one process: sessions over a pool of streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial

import torch

from ..adapter import Adapter
from ..backbones.protocol import Backbone
from ..core.overlay import encode
from ..core.types import Error, Event
from ..live.pool import StreamPool
from ..state import versions
from .engine import Json, Sent, SentEvent
from .problems import ProblemError
from .sessions.build import build_adapter, choices, restored
from .sessions.names import checked_name
from .sessions.registry import SessionRegistry
from .sessions.session import Session
from .sessions.store import SessionStore
from .settings import Settings

# Seconds between two checks of all sessions, and seconds during which events are collected before they are sent.
TICK, COLLECT = 1.0, 0.05
WORKERS = 2


def reset(adapter: Adapter) -> Event:
    """Return the adapter to its start."""
    adapter.reset()
    return Event("reset", "Reset by hand.")


# Actions on the adapter of a session, by the verb of the address.
ACTIONS: dict[str, Callable[[Adapter], Event]] = {
    "freeze": lambda adapter: adapter.freeze(),
    "thaw": lambda adapter: adapter.thaw(),
    "roll-back": lambda adapter: adapter.roll_back(),
    "reset": reset,
}


class LocalEngine:
    """Implements `Engine`. `pool` is not started yet; its streams are named by the ids of sessions.

    `restore` brings all stored sessions back at the start. Without it, `registry.adopt` brings back one session.

    >>> engine = LocalEngine(pool)
    >>> engine.store is None
    True
    """

    def __init__(
        self,
        pool: StreamPool,
        settings: Settings | None = None,
        store: SessionStore | None = None,
        *,
        restore: bool = True,
    ) -> None:
        self.pool, self.settings, self.store, self._restore = pool, settings or Settings(), store, restore
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="ostta-worker")
        self._ticking: asyncio.Task[None] | None = None
        self._registry: SessionRegistry | None = None
        # Ids of sessions that could not be stored at the end.
        self.unsaved: list[str] = []

    # --- start and stop -----------------------------------------------------------------------------------------------
    async def start(self) -> None:
        registry = SessionRegistry(self.pool, self.settings, self.store, self._workers)
        self.pool.start()
        await registry.work(lambda: try_model(self.pool.backbone))
        self._registry = registry
        if self.store is not None and self._restore:
            await registry.adopt_all()
        self._ticking = asyncio.create_task(self._tick(registry))

    async def stop(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._registry is not None:
            self.unsaved = await self._registry.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def ready(self) -> None:
        if self._ticking is None or self.registry.stopping:
            raise ProblemError(503, "The model has not answered yet, or the server is shutting down.", 5)
        self._require_store()

    # --- reading ------------------------------------------------------------------------------------------------------
    async def info(self) -> Json:
        backbone = self.pool.backbone
        return {
            "version": versions().get("ostta", "unknown"),
            "backbone": backbone.id,
            "device": str(backbone.device),
            "image_size": backbone.preprocessing.image_size,
            **choices(),
            "limits": self.settings.limits.to_dict(),
            "keeps_images": self.settings.keep_images,
            "save_every": self.settings.save_every if self.store is not None else None,
            "engine": "local",
        }

    async def counts(self) -> dict[str, float]:
        registry = self.registry
        return {
            "sessions": len(registry),
            "sessions_with_a_problem": sum(session.problem is not None for session in registry.sessions()),
            **asdict(registry.totals),
        }

    async def sessions(self) -> list[Json]:
        return [session.to_json() for session in self.registry.sessions()]

    async def session(self, id: str) -> Json:
        return self.registry[id].to_json()

    async def name(self, id: str) -> str:
        return self.registry[id].name

    async def recent(self, id: str, limit: int) -> Json:
        return self.registry[id].history.recent(limit)

    async def kept(self, id: str, which: str) -> list[Json]:
        history = self.registry[id].history
        if not self.settings.keep_images:
            raise ProblemError(404, "This server keeps no images: it was started without --keep-images.")
        return history.thumbnails(which)

    async def follow(self, id: str, after: int | None) -> AsyncIterator[SentEvent]:
        session = self.registry[id]
        history = session.history
        number = history.next_number - 1 if after is None else after
        follower = history.follow()
        try:
            while True:
                for event in history.events_after(number):
                    yield event
                    number = event.number
                if session.ended or self.registry.stopping:
                    return
                follower.clear()
                await follower.wait()
                await asyncio.sleep(COLLECT)
        finally:
            history.unfollow(follower)

    async def follow_all(self) -> AsyncIterator[list[Json]]:
        seen: dict[str, int] | None = None
        while not self.registry.stopping:
            now = {session.id: session.history.version for session in self.registry.sessions()}
            if now != seen:
                seen = now
                yield await self.sessions()
            await asyncio.sleep(TICK)

    # --- changing -----------------------------------------------------------------------------------------------------
    async def create(self, request: Json) -> Json:
        build = partial(build_adapter, request, self.pool.backbone, self.settings.limits)
        return (await self.registry.new(build, request.get("name"))).to_json()

    async def create_from(self, state: bytes, name: str | None) -> Json:
        return (await self.registry.new(self._restoring(state), name)).to_json()

    async def rename(self, id: str, name: str) -> Json:
        session = self.registry[id]
        session.name = checked_name(name)
        return await self._changed(session)

    async def delete(self, id: str) -> None:
        await self.registry.delete(id)

    async def state(self, id: str) -> bytes:
        copy = await self.registry[id].call(lambda adapter: adapter.copy_state())
        return await self.registry.work(copy.to_bytes)

    async def replace_state(self, id: str, state: bytes) -> Json:
        registry = self.registry
        session = registry[id]
        adapter = await registry.work(self._restoring(state))
        registry[id]  # it may have been deleted in the meantime
        with session.known_to_pool():
            await registry.work(lambda: self.pool.replace(id, adapter))
        session.replace(adapter)
        return await self._changed(session)

    async def act(self, id: str, verb: str) -> Json:
        session = self.registry[id]
        if verb == "save":
            return await self._save(session)
        event = await session.call(ACTIONS[verb])
        session.steps = session.adapter.steps
        if verb == "reset":
            session.history.restart()
        session.history.add_event(event, session.steps)
        return {"event": event.to_dict(), "session": await self._changed(session)}

    async def images(
        self, id: str, images: Sequence[Sent], learn: bool, evidence: bool, key: str | None = None
    ) -> list[Json]:
        self._require_store()
        return await self.registry[id].images(images, learn, evidence, key)

    # --- internals ----------------------------------------------------------------------------------------------------
    def _require_store(self) -> None:
        if self.store is not None and self.store.locked_out:
            raise ProblemError(503, "Another server uses the store of this server.", 5)

    @property
    def registry(self) -> SessionRegistry:
        """The sessions of this process."""
        if self._registry is None:
            raise ProblemError(503, "The model is being loaded.", 5)
        return self._registry

    def _restoring(self, state: bytes) -> Callable[[], Adapter]:
        """Return a function that restores the adapter in a state file of a client."""
        return partial(restored, state, self.pool.backbone, self.settings.limits)

    async def _save(self, session: Session) -> Json:
        if self.store is None:
            raise ProblemError(409, "This server stores no sessions: it was started without --state-dir and --store.")
        try:
            await session.save()
        except Error:
            raise ProblemError(507, session.problem or "The state could not be stored.", 30) from None
        event = Event("save", f"Stored after step {session.saved_steps}.")
        return {"event": event.to_dict(), "session": session.to_json()}

    async def _changed(self, session: Session) -> Json:
        """Store a change now. If that fails, the session says so, and the change stays."""
        with suppress(Error):
            await session.save()
        return session.to_json()

    async def _tick(self, registry: SessionRegistry) -> None:
        while True:
            await asyncio.sleep(TICK)
            await registry.tick()


def try_model(backbone: Backbone) -> None:
    """Encode a grey image, and raise an Error if the features are not finite."""
    size = backbone.preprocessing.image_size
    with torch.no_grad():
        features = encode(backbone.vision, torch.zeros(1, 3, size, size, device=backbone.device), None)
    if not bool(torch.isfinite(features).all()):
        raise Error(
            f"The backbone {backbone.id} returns features that are not finite for a grey image: "
            "check its weights and precision.",
            code="model-invalid",
        )
