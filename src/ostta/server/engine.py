"""The protocol between the web layer and the engines: one process, or many processes behind a router.

All values are plain: dictionaries of JSON values, strings and bytes. A request that cannot be answered raises a
`ProblemError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# The content of an image file, or features.
Sent = bytes | Sequence[float]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An event of a session as it is sent to clients: its number, its kind, and its data as JSON."""

    number: int
    kind: str
    data: str


class Engine(Protocol):
    """Sessions and their images."""

    async def start(self) -> None:
        """Prepare for requests and restore stored sessions."""

    async def stop(self) -> None:
        """Answer waiting images, store all sessions, and refuse new requests."""

    async def ready(self) -> None:
        """Raise a ProblemError with status 503 until the model has answered a trial image."""

    async def info(self) -> Json:
        """Return the answer of `GET /info`."""

    async def counts(self) -> dict[str, float]:
        """Return values for `/metrics` by name, such as sessions, waiting images and saves."""

    async def create(self, request: Json) -> Json:
        """Create a session from a validated request."""

    async def create_from(self, state: bytes, name: str | None) -> Json:
        """Create a session from a state file."""

    async def sessions(self) -> list[Json]:
        """Return all sessions, the oldest first."""

    async def session(self, id: str) -> Json:
        """Return one session."""

    async def name(self, id: str) -> str:
        """Return the name of a session, for tokens that are bound to names."""

    async def rename(self, id: str, name: str) -> Json:
        """Rename a session."""

    async def delete(self, id: str) -> None:
        """Delete a session for good."""

    async def images(
        self, id: str, images: Sequence[Sent], learn: bool, evidence: bool, key: str | None = None
    ) -> list[Json]:
        """Return a prediction for each image in order, or `{"problem": {...}}` for an image that cannot be read.

        `key` is the idempotency key of the request. Images that were sent with it before get the same answers again.
        """

    async def state(self, id: str) -> bytes:
        """Return the state file of a session."""

    async def replace_state(self, id: str, state: bytes) -> Json:
        """Continue a session from a state file."""

    async def act(self, id: str, verb: str) -> Json:
        """Freeze, thaw, roll-back, reset or save; return {"event": ..., "session": ...}."""

    async def recent(self, id: str, limit: int) -> Json:
        """Return the last points and events."""

    async def kept(self, id: str, which: str) -> list[Json]:
        """Return the most or least certain of the recent images, if images are kept."""

    def follow(self, id: str, after: int | None) -> AsyncIterator[SentEvent]:
        """Yield events as they happen, after those that are known since event number `after`."""

    def follow_all(self) -> AsyncIterator[list[Json]]:
        """Yield all sessions at once, and again after changes, about once per second."""
