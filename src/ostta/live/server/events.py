"""Server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse

from .engine import Json, Told
from .security import Token

# Seconds between two signs of life, and after which a reader that takes nothing is given up.
PING, GIVEN_UP = 15, 30


def session_events(told: AsyncIterator[Told]) -> EventSourceResponse:
    """What happens in one session."""
    return _response(_session(told))


def overview(sessions: AsyncIterator[list[Json]], token: Token) -> EventSourceResponse:
    """All sessions that the token may see, whenever something has changed."""
    return _response(_overview(sessions, token))


async def _session(told: AsyncIterator[Told]) -> AsyncIterator[bytes]:
    async for each in told:
        yield f"id: {each.number}\nevent: {each.kind}\ndata: {each.data}\n\n".encode()


async def _overview(sessions: AsyncIterator[list[Json]], token: Token) -> AsyncIterator[bytes]:
    last = None
    async for every in sessions:
        seen = json.dumps(
            [one for one in every if token.allows(one["id"], one["name"])], ensure_ascii=False, separators=(",", ":")
        )
        if seen != last:
            last = seen
            yield f"event: sessions\ndata: {seen}\n\n".encode()


def _response(content: AsyncIterator[bytes]) -> EventSourceResponse:
    return EventSourceResponse(
        content, ping=PING, send_timeout=GIVEN_UP, headers={"cache-control": "no-store", "x-accel-buffering": "no"}
    )
