"""A server with the embedded model in a thread of this process, and requests to it."""

from __future__ import annotations

import base64
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ostta
from helpers.pictures import encoded
from ostta.data import open_dataset

TOKEN = "a-token-of-the-tests-0123456789abcdef"


class Server:
    """Address of the server, and requests outside the browser."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, body: bytes | None = None, method: str | None = None) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def delete(self, session: str) -> None:
        self.ask(f"/sessions/{session}", method="DELETE")

    def make(self, name: str, *classes: str) -> str:
        """Create a session and return its id. The default classes are those of CIFAR-10."""
        asked = {"name": name, "classes": classes or open_dataset("sample:cifar10").classes}
        return str(self.ask("/sessions", json.dumps(asked).encode())["id"])

    def feed(self, session: str, images: int) -> None:
        """Send images of the classes and images of digits, which are unknown, in turn."""
        sets = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
        sent = [base64.b64encode(encoded(sets[number % 2].image(number))).decode() for number in range(images)]
        self.ask(f"/sessions/{session}/images", json.dumps({"images": sent}).encode())


@contextmanager
def running() -> Iterator[Server]:
    """Start a server at a free port. It requires `TOKEN`."""
    import uvicorn

    from ostta.server import LocalEngine, Settings, Token, Tokens, create_app

    app = create_app(LocalEngine(ostta.StreamPool("embedded")), Settings(), Tokens([Token(TOKEN)]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(30)
