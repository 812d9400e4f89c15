"""Settings of the operator: limits, saving, access."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..data.images import MAX_MEGAPIXELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the requests of clients.

    >>> Limits(sessions=8).sessions
    8
    """

    # Sessions, and classes of one session.
    sessions: int = 256
    classes: int = 1000
    # Prompts of one session: templates and descriptions of all its classes.
    prompts: int = 8000
    # Bytes of memory of one session, with the snapshots of its guard.
    session_bytes: int = 128 * 2**20
    # Bytes of the body of a request: with images, with a state, and any other. A state has small parts that
    # `session_bytes` does not count.
    body: int = 16 * 2**20
    state: int = 192 * 2**20
    json: int = 2**20
    login: int = 4096
    # Bytes of all bodies in memory.
    held: int = 256 * 2**20
    megapixels: float = MAX_MEGAPIXELS
    # Images in one request, waiting images of one session, and of all sessions.
    images: int = 64
    waiting: int = 64
    waiting_in_all: int = 1024
    # Concurrent requests including event streams, but without `/health` and `/ready`.
    requests: int = 1024
    # Concurrent requests without a token, from one address and from all; they do not use up `requests`.
    # A browser that loads the page sends six requests at a time, and several people may share an address.
    guests: int = 64
    guests_in_all: int = 256
    # Event streams of one token; without tokens, of all clients together.
    listeners: int = 128
    # Seconds for the head of a request, for its body, and for an answer.
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    answer_seconds: float = 60.0
    login_seconds: float = 5.0
    # Seconds after which a connection is closed if the client does not read what it was sent.
    read_seconds: float = 30.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Clock:
    """Sources of time: `wall` is the time of day, which may jump, and `steady` is for durations."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a server with any engine.

    >>> Settings(save_every=50).limits.megapixels
    64.0
    """

    limits: Limits = field(default_factory=Limits)
    # Maximum number of steps of a session that are lost if the process is killed.
    save_every: int = 100
    # Seconds after which a session with unsaved steps is saved.
    save_seconds: float = 30.0
    keep_images: bool = False
    # Chart points and events of one session that are kept and stored: how many of each, and for how many seconds.
    points: int = 600
    history_seconds: float = 30 * 24 * 3600.0
    # Host names of this server, in addition to the address at which it listens.
    hosts: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    # Networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are used.
    proxies: tuple[str, ...] = ()
    clock: Clock = field(default_factory=Clock)
