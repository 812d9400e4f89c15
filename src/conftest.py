"""Set up the examples in docstrings: a new folder, and the names that they use without creating them.

Importing this file starts nothing. The server starts when an example first uses `url`, `session` or a client.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import ostta
from ostta.backbones.embedded import load_embedded
from ostta.data import open_dataset
from ostta.evaluation import loop as evaluate
from ostta.live import AsyncClient, Client
from ostta.streams import Sample

CLASSES = ["cat", "dog", "ship"]
# A backbone never changes, so that the examples can share one: each of them would load it anew otherwise.
embedded = cache(load_embedded)


def _image() -> Image.Image:
    photos = open_dataset("sample:cifar10")
    return photos.image(photos.labels.tolist().index(photos.classes.index("cat")))


def _adapter() -> ostta.Adapter:
    return ostta.load("embedded", CLASSES, method="rosita")


def _frozen() -> ostta.Adapter:
    return ostta.load("embedded", CLASSES, method="zero_shot")


def _pool() -> ostta.StreamPool:
    pool = ostta.StreamPool("embedded")
    pool.add("door", CLASSES, method="rosita")
    return pool


def _records() -> evaluate.Records:
    samples = [Sample(_image(), 0, "photos", 0), Sample(_image(), 0, "photos", 1)]
    samples.append(Sample(open_dataset("sample:mnist").image(0), -1, "digits", 0))
    return evaluate.evaluate(_adapter(), samples)


@cache
def _url() -> str:
    """Start a server in this process and return its address."""
    import uvicorn

    from ostta.server import LocalEngine, SessionStore, create_app
    from ostta.server.logs import log_to

    log_to(io.StringIO())
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    app = create_app(LocalEngine(ostta.StreamPool(embedded()), store=SessionStore(Path(folder))))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


def _session() -> dict[str, Any]:
    with Client(_url()) as client:
        return client.create(CLASSES)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


NAMES: dict[str, Callable[[], Any]] = {
    "ostta": lambda: ostta,
    "image": _image,
    "adapter": _adapter,
    "frozen": _frozen,
    "pool": _pool,
    "records": _records,
    "url": _url,
    "session": _session,
    "client": lambda: Client(_url()),
    "async_client": lambda: AsyncClient(_url()),
    "run": lambda: lambda coroutine: _loop().run_until_complete(coroutine),
}


@pytest.fixture(autouse=True)
def _around_an_example(
    request: pytest.FixtureRequest,
    doctest_namespace: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[None]:
    monkeypatch.setattr("ostta.backbones.load_embedded", embedded)
    monkeypatch.chdir(tmp_path)
    text = "".join(example.source for example in request.node.dtest.examples)
    doctest_namespace.clear()
    doctest_namespace.update({name: make() for name, make in NAMES.items() if re.search(rf"\b{name}\b", text)})
    clients = doctest_namespace.get("client"), doctest_namespace.get("async_client")
    yield
    if clients[0] is not None:
        clients[0].close()
    if clients[1] is not None:
        _loop().run_until_complete(clients[1].close())
