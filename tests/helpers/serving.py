"""A server in this process with real sockets. The embedded backbone is loaded once."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import uvicorn

from helpers.pictures import encoded
from ostta import StreamPool
from ostta.backbones.embedded import load_embedded
from ostta.data import open_dataset
from ostta.server import LocalEngine, SessionStore, Settings, Tokens, create_app
from ostta.server.logs import log_to
from ostta.server.serving import config

embedded = cache(load_embedded)
# All servers of this process write to it, as there is one log of a process.
LOG = io.StringIO()
CLASSES = ["airplane", "bird", "cat", "dog", "ship"]


@cache
def pngs(count: int = 60) -> list[bytes]:
    """Return known and unknown images in turn."""
    known, unknown = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
    return [encoded((known, unknown)[number % 2].image(number)) for number in range(count)]


@dataclass
class Served:
    """A running server and a client for it."""

    http: httpx.Client
    port: int
    engine: LocalEngine
    log_start: int

    def session(self, **wanted: Any) -> str:
        answer = self.http.post("/sessions", json={"classes": CLASSES, **wanted})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def send(self, id: str, image: bytes, **params: Any) -> httpx.Response:
        return self.http.post(f"/sessions/{id}/images", content=image, params=params)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def lines(self) -> list[dict[str, Any]]:
        """Return the log since the start of this server."""
        return [json.loads(line) for line in LOG.getvalue()[self.log_start :].splitlines()]


@contextmanager
def served(
    settings: Settings | None = None, store: SessionStore | None = None, tokens: Tokens | None = None
) -> Iterator[Served]:
    wanted = settings or Settings()
    engine = LocalEngine(StreamPool(embedded(), queue=wanted.limits.waiting), wanted, store)
    server = uvicorn.Server(config(create_app(engine, wanted, tokens), wanted, host="127.0.0.1", port=0))
    start = len(LOG.getvalue())
    log_to(LOG)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            yield Served(http, port, engine, start)
    finally:
        server.should_exit = True
        thread.join()


def eventually(check: Any, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def state_hash(content: bytes) -> bytes:
    """Return the hash of the content of a state. The order of metadata in the file has no effect."""
    found = re.search(rb'"sha256":"([0-9a-f]{64})"', content)
    assert found is not None
    return found[1]


def is_problem(answer: httpx.Response, status: int, words: str) -> None:
    """Return whether the answer is a problem with this status and these words."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert content["status"] == status
    assert content["request_id"] == answer.headers["x-request-id"]
    assert words in content["detail"], content["detail"]
    assert len(content["detail"].splitlines()) == 1
    assert content["detail"].endswith(".")


def events_of(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    """Return the first `count` server-sent events."""
    found: list[dict[str, Any]] = []
    one: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and "data" in one:
            found.append({**one, "data": json.loads(one["data"])})
            one = {}
            if len(found) == count:
                break
        elif line and name in ("id", "event", "data"):
            one[name] = value
    return found
