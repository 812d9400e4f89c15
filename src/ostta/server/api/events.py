"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from sse_starlette import EventSourceResponse

from ..engine import Engine, Json, SentEvent
from ..logs import log
from ..security import Token

# Seconds between two pings.
PING = 15
# Maximum number of characters of class names per session in the overview; `GET /sessions/ID` has all of them.
MOST_CHARACTERS = 2000
# Bytes of an overview that are written at one time, which bounds the memory of a client that does not read.
SLICE = 64 * 1024


def session_events(events: AsyncIterator[SentEvent]) -> EventSourceResponse:
    """Return the events of one session as a response."""
    return _response((f"id: {e.number}\nevent: {e.kind}\ndata: {e.data}\n\n".encode() async for e in events), PING)


class Overview:
    """All sessions as server-sent events. Each event is read from the engine and encoded once for all listeners."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions: list[Json] | None = None
        # By the patterns of a token, which determine the sessions that a listener sees.
        self._encoded: dict[tuple[str, ...], bytes] = {}
        self._wakers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    def response(self, token: Token) -> EventSourceResponse:
        """Return a response with all sessions that the token may see, sent after every change."""
        # The library could write a ping between two slices of one event.
        return _response(self._follow(token), 0)

    async def _follow(self, token: Token) -> AsyncIterator[bytes]:
        waker = asyncio.Event()
        self._wakers.add(waker)
        if self._task is None:
            self._task = asyncio.create_task(self._collect())
        elif self._sessions is not None:
            waker.set()
        task, last = self._task, b""
        try:
            while True:
                try:
                    async with asyncio.timeout(PING):
                        await waker.wait()
                except TimeoutError:
                    yield b": ping\n\n"
                    continue
                waker.clear()
                event = self._event(token)
                if event != last:
                    last = event
                    for start in range(0, len(event), SLICE):
                        yield event[start : start + SLICE]
                if task.done():
                    return
        finally:
            self._wakers.discard(waker)
            if not self._wakers:
                task.cancel()
                self._forget(task)

    async def _collect(self) -> None:
        """Keep the list of sessions up to date while there are listeners."""
        try:
            async for sessions in self._engine.follow_all():
                self._sessions, self._encoded = [_shortened(session) for session in sessions], {}
                self._wake()
        except Exception as problem:
            log("the overview of sessions has ended", level="error", problem=f"{type(problem).__name__}: {problem}")
        # The engine has stopped. Listeners see that this task is done and end too.
        self._forget(asyncio.current_task())
        asyncio.get_running_loop().call_soon(self._wake)

    def _forget(self, task: asyncio.Task[None] | None) -> None:
        if self._task is task:
            self._task, self._sessions, self._encoded = None, None, {}

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    def _event(self, token: Token) -> bytes:
        if self._sessions is None:
            return b""
        if token.patterns not in self._encoded:
            visible = [each for each in self._sessions if token.allows(each["id"], each["name"])]
            text = json.dumps(visible, ensure_ascii=False, separators=(",", ":"))
            self._encoded[token.patterns] = f"event: sessions\ndata: {text}\n\n".encode("utf-8", "replace")
        return self._encoded[token.patterns]


def _shortened(session: Json) -> Json:
    """Return the session with the class names that fit into the overview."""
    size, shown = 0, 0
    for name in session["classes"]:
        size += len(name)
        if size > MOST_CHARACTERS:
            break
        shown += 1
    if shown == len(session["classes"]):
        return session
    names = session["classes"][:shown]
    kept = set(names)
    shortened: dict[str, Any] = {
        **session,
        "classes": names,
        "class_counts": {name: count for name, count in session["class_counts"].items() if name in kept},
        "unfamiliar": [name for name in session["unfamiliar"] if name in kept],
    }
    return shortened


def _response(content: AsyncIterator[bytes], ping: int) -> EventSourceResponse:
    return EventSourceResponse(content, ping=ping, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
