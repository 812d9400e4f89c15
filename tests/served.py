"""A server with the embedded model in a thread of this process, and requests to it."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

import ostta
from ostta.data import open_dataset

TOKEN = "a-token-of-the-tests-0123456789abcdef"


class Server:
    """The server's address, and requests beside a browser's."""

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
        """A new session, by its id; CIFAR-10's classes where none are given."""
        asked = {"name": name, "classes": classes or open_dataset("sample:cifar10").classes}
        return str(self.ask("/sessions", json.dumps(asked).encode())["id"])

    def feed(self, session: str, images: int) -> None:
        """Photographs of the classes and digits, which are none, in turn."""
        sets = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
        sent = [base64.b64encode(encoded(sets[number % 2].image(number))).decode() for number in range(images)]
        self.ask(f"/sessions/{session}/images", json.dumps({"images": sent}).encode())


def encoded(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


@contextmanager
def running() -> Iterator[Server]:
    """A server at a port that was free; it wants `TOKEN`."""
    import uvicorn

    from ostta.server import LocalEngine, Settings, Token, Tokens, create_app

    app = create_app(LocalEngine(ostta.StreamPool("embedded")), Settings(), Tokens([Token(TOKEN)]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(30)
