"""The engine of one process: sessions over a pool of streams."""

from __future__ import annotations

import asyncio
import base64
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from ... import __version__
from ...adapter import Adapter
from ...core.overlay import encode
from ...core.types import Error, Event, Prediction
from ..pool import StreamPool
from .answering import Arrivals
from .engine import VERBS, Json, Sent, Told
from .keeping import Keeper
from .line import Entry, Line
from .logs import log
from .pictures import Kept, Picture, small_enough
from .predictions import to_json
from .problems import ProblemError, one_line
from .session import Session
from .settings import Settings
from .states import restored
from .store import SessionStore, Stored, new_id
from .wanted import checked_name, choices, made

T = TypeVar("T")
# Seconds between two looks at all sessions, and for which events are gathered before they are sent.
TICK, GATHERED = 1.0, 0.05
_DECODERS = 2


class LocalEngine:
    """Implements `Engine`. `pool` is not started yet; its streams are called by the ids of sessions."""

    def __init__(self, pool: StreamPool, settings: Settings | None = None, store: SessionStore | None = None) -> None:
        self.pool, self.settings, self.store = pool, settings or Settings(), store
        self._sessions: dict[str, Session] = {}
        self._lines: dict[str, Line] = {}
        self._kept: dict[str, Kept] = {}
        self._being_made = 0
        self._answered = False
        self._stopping = False
        self._workers = ThreadPoolExecutor(_DECODERS, thread_name_prefix="ostta-worker")
        self._tick: asyncio.Task[None] | None = None
        # Figures for /metrics.
        self.judged = self.unreadable = 0

    # --- its life -----------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrivals = Arrivals(self._loop)
        self._keeper = Keeper(self.store, self.pool, self.settings, self._arrivals, self._may_move)
        self.pool.start()
        if self.store is not None:
            await self._restore_all(self.store)
        await self._work(self._try_model)
        self._answered = True
        self._tick = asyncio.create_task(self._ticking())

    async def stop(self) -> None:
        self._stopping = True
        if self._tick is not None:
            self._tick.cancel()
        for line in self._lines.values():
            line.end(ProblemError(503, "The server is shutting down.", 5))
        await self._work(self.pool.close)
        await asyncio.sleep(0)  # what the pool has answered last is seen
        await self._keeper.close(list(self._sessions.values()))
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def ready(self) -> None:
        if self._stopping or not self._answered:
            raise ProblemError(503, "The server is shutting down." if self._stopping else "The model is being loaded.", 5)

    # --- what is told ---------------------------------------------------------------------------------------------------------
    async def info(self) -> Json:
        backbone = self.pool.backbone
        return {
            "version": __version__,
            "backbone": backbone.id,
            "device": str(next((p.device for p in backbone.vision.parameters()), "cpu")),
            "image_size": backbone.preprocessing.image_size,
            **choices(),
            "limits": self.settings.limits.to_dict(),
            "keeps_images": self.settings.keep_images,
            "save_every": self.settings.save_every if self.store is not None else None,
            "engine": "local",
        }

    async def counts(self) -> dict[str, float]:
        sessions = list(self._sessions.values())
        return {
            "sessions": len(sessions),
            "sessions_with_a_problem": sum(session.problem is not None for session in sessions),
            "sessions_unreadable": self.unreadable,
            "images_waiting": sum(map(len, self._lines.values())),
            "images_judged_total": self.judged,
            "saves_total": self._keeper.saves,
            "save_failures_total": self._keeper.failures,
        }

    async def sessions(self) -> list[Json]:
        return [session.to_json() for session in sorted(self._sessions.values(), key=lambda each: (each.created, each.id))]

    async def session(self, id: str) -> Json:
        return self._found(id).to_json()

    async def name(self, id: str) -> str:
        return self._found(id).name

    async def recent(self, id: str, limit: int) -> Json:
        return self._found(id).recent(limit)

    async def kept(self, id: str, which: str) -> list[Json]:
        self._found(id)
        if not self.settings.keep_images:
            raise ProblemError(404, "This server keeps no images: it was started without --keep-images.")
        return self._kept[id].chosen(which)

    async def follow(self, id: str, after: int | None) -> AsyncIterator[Told]:
        session = self._found(id)
        number = session.next_number - 1 if after is None else after
        follower = session.follower()
        try:
            while True:
                for told in session.told_after(number):
                    yield told
                    number = told.number
                if session.deleted or self._stopping:
                    return
                follower.clear()
                await follower.wait()
                await asyncio.sleep(GATHERED)
        finally:
            session.unfollow(follower)

    async def follow_all(self) -> AsyncIterator[list[Json]]:
        seen: dict[str, int] | None = None
        while not self._stopping:
            now = {id: session.version for id, session in self._sessions.items()}
            if now != seen:
                seen = now
                yield await self.sessions()
            await asyncio.sleep(TICK)

    # --- sessions -----------------------------------------------------------------------------------------------------------
    async def create(self, wanted: Json) -> Json:
        name = wanted.get("name")
        backbone, most = self.pool.backbone, self.settings.limits.classes
        return await self._new(lambda: made(wanted, backbone, most), name)

    async def create_from(self, state: bytes, name: str | None) -> Json:
        return await self._new(lambda: self._restored(state), name)

    async def rename(self, id: str, name: str) -> Json:
        session = self._found(id)
        session.name = checked_name(name)
        session.changed()
        await self._stored(session)
        return session.to_json()

    async def delete(self, id: str) -> None:
        session = self._found(id)
        del self._sessions[id]
        self._lines.pop(id).end(ProblemError(404, f"The session {id!r} was deleted."))
        self._kept.pop(id, None)
        session.deleted = True
        session.changed()
        await self._work(lambda: self.pool.remove(id))
        await self._keeper.forget(session)

    async def state(self, id: str) -> bytes:
        self._found(id)
        copy = await self._call(id, lambda adapter: adapter.copy_state())
        return await self._work(copy.to_bytes)

    async def replace_state(self, id: str, state: bytes) -> Json:
        session = self._found(id)
        adapter = await self._work(lambda: self._restored(state))
        self._found(id)
        await self._work(lambda: self.pool.replace(id, adapter))
        session.replaced(adapter)
        session.happened(Event("replaced", "The state was replaced by an uploaded one."), session.steps, "session")
        await self._stored(session)
        return session.to_json()

    async def act(self, id: str, verb: str) -> Json:
        session = self._found(id)
        if verb not in VERBS:
            raise ProblemError(404, f"A session cannot {verb!r}; there are {', '.join(VERBS)}.")
        if verb == "save":
            if self.store is None:
                raise ProblemError(409, "This server stores no sessions: it was started without --state-dir.")
            await self._keeper.changed(session)
            event = Event("save", f"Stored after step {session.steps}.")
            return {"event": event.to_dict(), "session": session.to_json()}
        event = await self._call(id, _acts[verb])
        session.steps = session.adapter.steps
        session.happened(event, session.steps, "session")
        await self._stored(session)
        return {"event": event.to_dict(), "session": session.to_json()}

    # --- images -------------------------------------------------------------------------------------------------------------
    async def images(self, id: str, images: Sequence[Sent], learn: bool, evidence: bool) -> list[Json]:
        line = self._found(id) and self._lines[id]
        limits = self.settings.limits
        if len(line) + len(images) > limits.waiting:
            raise ProblemError(429, f"{len(line)} images of this session are waiting, and {limits.waiting} may: send again later.", 1)
        if sum(map(len, self._lines.values())) + len(images) > limits.waiting_in_all:
            raise ProblemError(429, f"{limits.waiting_in_all} images may wait on this server at one time: send again later.", 1)
        entries = [self._entry(line, sent, learn) for sent in images]
        line.put(entries)
        answers: list[Json] = []
        try:
            async with asyncio.timeout(limits.answer_seconds):
                for entry in entries:
                    answers.append(await self._answer(entry, evidence))
        except TimeoutError:
            for entry in entries:
                entry.answer.cancel()
            raise ProblemError(503, f"There was no answer within {limits.answer_seconds:g} seconds: send again later.", 5) from None
        return answers

    def _entry(self, line: Line, sent: Sent, learn: bool) -> Entry:
        """An image in the line; a large one is decoded while it waits there."""
        entry = Entry(self._loop.create_future(), learn)
        try:
            if not isinstance(sent, bytes):
                entry.image = torch.tensor(sent, dtype=torch.float32)
                return entry
            picture = Picture(sent, self.settings.limits.megapixels)
            if small_enough(picture) and not self.settings.keep_images:
                entry.image = picture.decode()
                return entry
        except Error as problem:
            entry.problem = problem
            return entry

        def decoded() -> None:
            try:
                image = picture.decode()
                entry.thumbnail = picture.thumbnail(image) if self.settings.keep_images else None
                entry.image = image
            except Exception as problem:
                entry.problem = problem

        self._workers.submit(decoded).add_done_callback(lambda _: self._loop.call_soon_threadsafe(line.move))
        return entry

    async def _answer(self, entry: Entry, evidence: bool) -> Json:
        try:
            prediction, step = await entry.answer
        except Error as problem:
            return {"problem": ProblemError(422, one_line(str(problem))).to_dict()}
        if prediction.verdict is None:
            return {"problem": ProblemError(422, one_line(str(prediction.reason))).to_dict()}
        return to_json(prediction, step, evidence)

    def _step_done(self, session: Session, entry: Entry, prediction: Prediction) -> None:
        self.judged += 1
        if session.id in self._sessions:
            if entry.thumbnail is not None and prediction.verdict is not None:
                self._kept[session.id].add(session.steps, prediction, entry.thumbnail)
            self._keeper.stepped(session)

    def _may_move(self, session: Session) -> None:
        if session.id in self._lines:
            self._lines[session.id].move()

    # --- inside -----------------------------------------------------------------------------------------------------------
    def _found(self, id: str) -> Session:
        if id not in self._sessions:
            raise ProblemError(404, f"There is no session {one_line(id, 40)!r}.")
        return self._sessions[id]

    async def _new(self, make: Callable[[], Adapter], name: Any) -> Json:
        most = self.settings.limits.sessions
        if self._stopping or len(self._sessions) + self._being_made >= most:
            why = "The server is shutting down." if self._stopping else f"There are {most} sessions, the most that this server has at one time."
            raise ProblemError(503, why, 30)
        wanted = None if name is None else checked_name(name)
        self._being_made += 1
        try:
            adapter = await self._work(make)
            id = new_id()
            session = Session(id, wanted or f"session {id[:6]}", adapter, self.settings.clock, self.settings.points)
            if self.store is not None:
                # Before it is answered: a session that somebody knows of is never lost.
                stored = Stored(id, await self._work(adapter.copy_state().to_bytes), session.about())
                await self._work(lambda: self._first_save(stored))
            await self._work(lambda: self.pool.add(id, adapter))
            self._add(session)
        finally:
            self._being_made -= 1
        return session.to_json()

    def _first_save(self, stored: Stored) -> None:
        assert self.store is not None
        try:
            self.store.save(stored)
        except (Error, OSError) as problem:
            log("new session could not be stored", level="error", problem=str(problem))
            raise ProblemError(507, "The new session could not be stored: the disk of the server is full or cannot be written.", 30) from None

    def _add(self, session: Session) -> None:
        self._sessions[session.id] = session
        self._lines[session.id] = Line(session, self.pool, self._arrivals, self._keeper.may_step, self._step_done)
        self._kept[session.id] = Kept()
        self._keeper.add(session)

    def _restored(self, state: bytes) -> Adapter:
        return restored(state, self.pool.backbone, self.settings.limits.classes)

    async def _restore_all(self, store: SessionStore) -> None:
        for id in await self._work(store.ids):
            try:
                stored = await self._work(lambda id=id: store.load(id))  # type: ignore[misc]
                adapter = await self._work(lambda state=stored.state: self._restored(state))  # type: ignore[misc]
            except (Error, OSError) as problem:
                # Its files stay as they are, for a person to look at.
                self.unreadable += 1
                log("session could not be restored", level="error", session=id, problem=str(problem))
                continue
            name = stored.about.get("name")
            session = Session(id, name if isinstance(name, str) else id[:6], adapter, self.settings.clock, self.settings.points)
            session.take_over(stored.about)
            await self._work(lambda id=id, adapter=adapter: self.pool.add(id, adapter))  # type: ignore[misc]
            self._add(session)
        log("sessions restored", sessions=len(self._sessions), unreadable=self.unreadable)

    async def _stored(self, session: Session) -> None:
        """Save a change now; where that fails, the session says so and the change stays."""
        try:
            await self._keeper.changed(session)
        except Error:
            pass

    async def _call(self, id: str, function: Callable[[Adapter], T]) -> T:
        """Something done with the adapter between two steps, before all that wait."""
        done: asyncio.Future[T] = self._loop.create_future()
        future = self.pool.call(id, function, first=True)

        def arrived(future: Any, _: int) -> None:
            if not done.done():
                problem = future.exception()
                done.set_result(future.result()) if problem is None else done.set_exception(problem)

        self._arrivals.expect(future, lambda: 0, arrived)
        return await done

    async def _work(self, function: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._workers, function)

    async def _ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._keeper.tick(list(self._sessions.values()))

    def _try_model(self) -> None:
        backbone = self.pool.backbone
        size = backbone.preprocessing.image_size
        device = next((parameter.device for parameter in backbone.vision.parameters()), torch.device("cpu"))
        with torch.no_grad():
            features = encode(backbone.vision, torch.zeros(1, 3, size, size, device=device), None)
        if not bool(torch.isfinite(features).all()):
            raise Error(f"The backbone {backbone.id} gives features that are not finite for a grey image.")


def _reset(adapter: Adapter) -> Event:
    adapter.reset()
    return Event("reset", "Reset by hand.")


_acts: dict[str, Callable[[Adapter], Event]] = {
    "freeze": lambda adapter: adapter.freeze(),
    "thaw": lambda adapter: adapter.thaw(),
    "roll-back": lambda adapter: adapter.roll_back(),
    "reset": _reset,
}
