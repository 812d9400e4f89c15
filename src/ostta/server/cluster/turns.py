"""One at a time for each session, in the order of coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """By key; nothing is kept of a key that nobody uses or waits for."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        line = self._lines.setdefault(key, _Line())
        line.users += 1
        try:
            async with line.lock:
                yield
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[key]
