"""The engine of one process: sessions over a pool of streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from ..adapter import Adapter
from ..core.types import Error, Event
from ..live.pool import StreamPool
from ..state import versions
from .acts import ACTS
from .engine import VERBS, Json, Sent, Told
from .idempotency import image_keys
from .intake import answer_of, entry_of
from .line import Entry
from .model import device_of, try_model
from .problems import MAYBE_COUNTED, ProblemError
from .roster import Roster
from .session import Session
from .settings import Settings
from .store import SessionStore
from .wanted import checked_name, choices, made

T = TypeVar("T")
# Seconds between two looks at all sessions, and for which events are gathered before they are sent.
TICK, GATHERED = 1.0, 0.05
WORKERS = 2


class LocalEngine:
    """Implements `Engine`. `pool` is not started yet; its streams are called by the ids of sessions.

    `restore`: whether all stored sessions are back at the start; else they come one by one, by `adopt`.

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
        self._tick: asyncio.Task[None] | None = None
        self._roster: Roster | None = None
        self._answered = False
        # Ids of sessions that could not be stored at the end.
        self.unsaved: list[str] = []

    # --- its life -----------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        roster = Roster(self.pool, self.settings, self.store, self._workers)
        self.pool.start()
        await roster.work(lambda: try_model(self.pool.backbone))
        self._roster = roster
        if self.store is not None and self._restore:
            await roster.adopt_all()
        self._tick = asyncio.create_task(self._ticking(roster))
        self._answered = True

    async def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        if self._roster is not None:
            self.unsaved = await self._roster.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def ready(self) -> None:
        if not self._answered or self._sessions.stopping:
            raise ProblemError(503, "The model has not answered yet, or the server is shutting down.", 5)

    async def adopt(self, id: str) -> None:
        """Bring a stored session into this process; nothing happens where it is here already."""
        await self._sessions.adopt(id)

    async def release(self, id: str) -> None:
        """Save a session and forget it in this process; it stays in the store."""
        await self._sessions.release(id)

    # --- what is told ---------------------------------------------------------------------------------------------------------
    async def info(self) -> Json:
        backbone = self.pool.backbone
        return {
            "version": versions().get("ostta", "unknown"),
            "backbone": backbone.id,
            "device": str(device_of(backbone)),
            "image_size": backbone.preprocessing.image_size,
            **choices(),
            "limits": self.settings.limits.to_dict(),
            "keeps_images": self.settings.keep_images,
            "save_every": self.settings.save_every if self.store is not None else None,
            "engine": "local",
        }

    async def counts(self) -> dict[str, float]:
        roster = self._sessions
        return {
            "sessions": len(roster),
            "sessions_with_a_problem": sum(session.problem is not None for session in roster.sessions()),
            "sessions_unreadable": roster.unreadable,
            "images_waiting": roster.waiting,
            "images_judged_total": roster.judged,
            "images_undecided_total": roster.undecided,
            "images_with_probability_total": roster.with_probability,
            "probability_sum_total": roster.probability_sum,
            "guard_events_total": roster.guard_events,
            "saves_total": roster.keeper.saves,
            "save_failures_total": roster.keeper.failures,
        }

    async def sessions(self) -> list[Json]:
        ordered = sorted(self._sessions.sessions(), key=lambda session: (session.created, session.id))
        return [session.to_json() for session in ordered]

    async def session(self, id: str) -> Json:
        return self._session(id).to_json()

    async def name(self, id: str) -> str:
        return self._session(id).name

    async def recent(self, id: str, limit: int) -> Json:
        return self._session(id).recent(limit)

    async def kept(self, id: str, which: str) -> list[Json]:
        member = self._sessions.found(id)
        if not self.settings.keep_images:
            raise ProblemError(404, "This server keeps no images: it was started without --keep-images.")
        return member.kept.chosen(which)

    async def follow(self, id: str, after: int | None) -> AsyncIterator[Told]:
        session = self._session(id)
        number = session.next_number - 1 if after is None else after
        follower = session.follower()
        try:
            while True:
                for told in session.told_after(number):
                    yield told
                    number = told.number
                if session.ended or self._sessions.stopping:
                    return
                follower.clear()
                await follower.wait()
                await asyncio.sleep(GATHERED)
        finally:
            session.unfollow(follower)

    async def follow_all(self) -> AsyncIterator[list[Json]]:
        seen: dict[str, int] | None = None
        while not self._sessions.stopping:
            now = {session.id: session.version for session in self._sessions.sessions()}
            if now != seen:
                seen = now
                yield await self.sessions()
            await asyncio.sleep(TICK)

    # --- sessions -----------------------------------------------------------------------------------------------------------
    async def create(self, wanted: Json) -> Json:
        backbone, limits = self.pool.backbone, self.settings.limits
        return (await self._sessions.new(lambda: made(wanted, backbone, limits), wanted.get("name"))).to_json()

    async def create_from(self, state: bytes, name: str | None) -> Json:
        return (await self._sessions.new(lambda: self._sessions.restored(state), name)).to_json()

    async def rename(self, id: str, name: str) -> Json:
        session = self._session(id)
        session.name = checked_name(name)
        return await self._changed(session)

    async def delete(self, id: str) -> None:
        await self._sessions.delete(id)

    async def state(self, id: str) -> bytes:
        self._session(id)
        copy = await self._between_steps(id, lambda adapter: adapter.copy_state())
        return await self._sessions.work(copy.to_bytes)

    async def replace_state(self, id: str, state: bytes) -> Json:
        session, roster = self._session(id), self._sessions
        adapter = await roster.work(lambda: roster.restored(state))
        self._session(id)  # it may have been deleted in the meantime
        with self._known(id):
            await roster.work(lambda: self.pool.replace(id, adapter))
        session.replaced(adapter)
        session.happened(Event("replaced", "The state was replaced by an uploaded one."), session.steps, "session")
        return await self._changed(session)

    async def act(self, id: str, verb: str) -> Json:
        session = self._session(id)
        if verb not in VERBS:
            raise ProblemError(404, f"A session cannot {verb!r}; there are {', '.join(VERBS)}.")
        if verb == "save":
            if self.store is None:
                raise ProblemError(409, "This server stores no sessions: it was started without --state-dir.")
            try:
                await self._sessions.keeper.changed(session)
            except Error:
                raise ProblemError(507, session.problem or "The state could not be stored.", 30) from None
            event = Event("save", f"Stored after step {session.saved_steps}.")
            return {"event": event.to_dict(), "session": session.to_json()}
        event = await self._between_steps(id, ACTS[verb])
        session.steps = session.adapter.steps
        if verb == "reset":
            session.restart()
        session.happened(event, session.steps, "session")
        return {"event": event.to_dict(), "session": await self._changed(session)}

    # --- images -------------------------------------------------------------------------------------------------------------
    async def images(
        self, id: str, images: Sequence[Sent], learn: bool, evidence: bool, key: str | None = None
    ) -> list[Json]:
        line, limits = self._sessions.found(id).line, self.settings.limits
        if len(line) + len(images) > limits.waiting:
            raise ProblemError(
                429, f"{len(line)} images of this session are waiting, and {limits.waiting} may: send again later.", 1
            )
        if self._sessions.waiting + len(images) > limits.waiting_in_all:
            raise ProblemError(
                429, f"{limits.waiting_in_all} images may wait on this server at one time: send again later.", 1
            )
        keys = image_keys(key, images) if learn and key is not None else [None] * len(images)
        found: list[Entry | Json] = []
        new: list[Entry] = []
        try:
            for sent, image_key in zip(images, keys, strict=True):
                known = None if image_key is None else line.repeated(image_key)
                if known is None:
                    known = entry_of(sent, learn, line, self._workers, self.settings)
                    known.key = image_key
                    new.append(known)
                found.append(known)
            line.put(new)
            async with asyncio.timeout(limits.answer_seconds):
                return [await answer_of(one, evidence) if isinstance(one, Entry) else one for one in found]
        except (TimeoutError, ProblemError) as problem:
            if not isinstance(problem, ProblemError):
                problem = ProblemError(
                    503, f"There was no answer within {limits.answer_seconds:g} seconds: send again later.", 5
                )
            if problem.status == 503 and any(not isinstance(one, Entry) or one.counted for one in found):
                problem = ProblemError(
                    409,
                    f"{problem.detail.rstrip('.')}. Images of this request may have been counted: "
                    "send it again only with its idempotency key.",
                    problem.retry_after,
                    MAYBE_COUNTED,
                )
            raise problem from None
        finally:
            for one in found:
                if isinstance(one, Entry):
                    one.give_up()

    # --- inside -----------------------------------------------------------------------------------------------------------
    @property
    def _sessions(self) -> Roster:
        if self._roster is None:
            raise ProblemError(503, "The model is being loaded.", 5)
        return self._roster

    def _session(self, id: str) -> Session:
        return self._sessions.found(id).session

    async def _changed(self, session: Session) -> Json:
        """Save a change now; where that fails, the session says so and the change stays."""
        session.changed()
        with suppress(Error):
            await self._sessions.keeper.changed(session)
        return session.to_json()

    async def _between_steps(self, id: str, function: Callable[[Adapter], T]) -> T:
        """What `function` gives, called before all images that wait."""
        done: asyncio.Future[T] = self._loop.create_future()

        def arrived(future: Future[T], _: int) -> None:
            problem = future.exception()
            if done.done():
                return
            if problem is None:
                done.set_result(future.result())
            else:
                done.set_exception(problem)

        with self._known(id):
            future = self.pool.call(id, function, first=True)
        self._sessions.arrivals.expect(future, lambda: 0, arrived)
        return await done

    @contextmanager
    def _known(self, id: str) -> Iterator[None]:
        """What the pool says of a stream that it does not have names others, and is not for strangers."""
        try:
            yield
        except Error:
            self._session(id)
            raise ProblemError(503, "The server is shutting down.", 5) from None

    async def _ticking(self, roster: Roster) -> None:
        while True:
            await asyncio.sleep(TICK)
            roster.keeper.tick(roster.sessions())
