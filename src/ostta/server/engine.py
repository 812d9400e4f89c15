"""What answers the requests: one process, or many behind a router. The web layer knows this protocol and nothing else.

All values are plain: dictionaries as JSON has them, texts and bytes. What cannot be done is a `ProblemError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# What can be done with a session beside images: the verbs of the address, with - for _.
VERBS = ("freeze", "thaw", "roll-back", "reset", "save")

# One image as it was sent, or its features.
Sent = bytes | Sequence[float]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """One event of a session: its number, its name on the wire, and its data as JSON text."""

    number: int
    kind: str
    data: str


class Engine(Protocol):
    """Sessions and their images."""

    async def start(self) -> None:
        """Be ready for requests; sessions that were stored are back."""

    async def stop(self) -> None:
        """Answer what waits, save all, and take no more."""

    async def ready(self) -> None:
        """A ProblemError with status 503 while the model has not answered a trial image."""

    async def info(self) -> Json:
        """What `GET /info` says."""

    async def counts(self) -> dict[str, float]:
        """Figures for `/metrics`: sessions, images waiting, saves and so on, by name."""

    async def create(self, wanted: Json) -> Json:
        """A new session from a checked request."""

    async def create_from(self, state: bytes, name: str | None) -> Json:
        """A new session from a state file."""

    async def sessions(self) -> list[Json]:
        """All sessions, the oldest first."""

    async def session(self, id: str) -> Json:
        """One of them."""

    async def name(self, id: str) -> str:
        """Its name; asked where a token is bound to names."""

    async def rename(self, id: str, name: str) -> Json:
        """The session under another name."""

    async def delete(self, id: str) -> None:
        """Forget it for good."""

    async def images(
        self, id: str, images: Sequence[Sent], learn: bool, evidence: bool, key: str | None = None
    ) -> list[Json]:
        """A prediction for each, in order; `{"problem": {...}}` for one that cannot be read.

        `key`: the idempotency key of the request. Images that were sent with it before get their answers and are not learned again.
        """

    async def state(self, id: str) -> bytes:
        """The state file as it would be saved now."""

    async def replace_state(self, id: str, state: bytes) -> Json:
        """The session goes on from a state file."""

    async def act(self, id: str, verb: str) -> Json:
        """Do one of `VERBS`; {"event": ..., "session": ...}."""

    async def recent(self, id: str, limit: int) -> Json:
        """The last points and events."""

    async def kept(self, id: str, which: str) -> list[Json]:
        """The most or least certain of the recent images; only where images are kept."""

    def follow(self, id: str, after: int | None) -> AsyncIterator[Told]:
        """What happens from now on; what is still known after the event number `after` comes first."""

    def follow_all(self) -> AsyncIterator[list[Json]]:
        """All sessions, at once and whenever something has changed, about once a second."""
