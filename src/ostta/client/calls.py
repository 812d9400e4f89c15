"""Requests of a client and the meaning of answers; nothing here uses the network."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import import_extra
from ..core.types import Error
from ..io import read_regular

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

Json = dict[str, Any]
# How often a call is repeated if the server is busy.
RETRIES = 5
# Seconds: the longest pause before a call is repeated, and the longest wait for an answer.
LONGEST, TIMEOUT = 30.0, 90.0
# The server sends pings between events: after this many seconds of silence the connection is broken.
SILENCE = 60.0
# The header of the idempotency key, and the code of a request that may have been counted.
KEY, MAYBE_COUNTED = "idempotency-key", "maybe-counted"
_MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}


class ServerError(Error):
    """A problem that the server reported: its sentence, the `status`, and the `request_id` under which the log has it.

    `code` is the kind of the problem, such as "not-found"; "maybe-counted" means that the session may have learned from images.

    >>> try:
    ...     client.session("0" * 32)
    ... except ServerError as problem:
    ...     print(problem.status, problem)
    404 There is no session '00000000000000000000000000000000'.
    """

    def __init__(
        self,
        detail: str,
        status: int,
        request_id: str | None = None,
        retry_after: float | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.request_id, self.retry_after = status, request_id, retry_after
        self.code = code or self.code


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    files: list[tuple[str, tuple[str, bytes, str]]] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for httpx."""
        return {
            "params": self.params,
            "json": self.json,
            "content": self.content,
            "files": self.files,
            "headers": self.headers,
        }


def import_httpx() -> Any:
    """Import the HTTP library when the first client is created."""
    return import_extra("httpx", "A client", "serve")


def import_sse() -> Any:
    """Import the library that reads server-sent events."""
    return import_extra("httpx_sse", "Following a session", "serve")


def create(classes: Any, name: str | None, options: Mapping[str, Any]) -> Call:
    """Create a session; `options` are those of `POST /sessions`."""
    wanted = {"classes": classes, **({} if name is None else {"name": name}), **options}
    return Call("POST", "/sessions", json=wanted)


def create_from(state: bytes | str | os.PathLike[str], name: str | None) -> Call:
    """Create a session from a state file."""
    return Call(
        "POST", "/sessions/import", {} if name is None else {"name": name}, content=content_of(state, "state file")
    )


def replace_state(id: str, state: bytes | str | os.PathLike[str]) -> Call:
    """Replace the state of a session."""
    return Call("PUT", f"/sessions/{id}/state", content=content_of(state, "state file"))


def send(id: str, image: Any, learn: bool, evidence: bool, key: str | None) -> Call:
    """Send one image as the body of the request."""
    content = image_bytes(image)
    return Call(
        "POST",
        f"/sessions/{id}/images",
        _how(learn, evidence),
        content=content,
        headers={"content-type": _type(content), **_key(learn, key)},
    )


def send_many(id: str, images: Sequence[Any], learn: bool, evidence: bool, key: str | None) -> Call:
    """Send several images as files of a form."""
    contents = [image_bytes(image) for image in images]
    files = [("image", (f"{number}", content, _type(content))) for number, content in enumerate(contents)]
    return Call("POST", f"/sessions/{id}/images", _how(learn, evidence), files=files, headers=_key(learn, key))


def send_features(id: str, features: Sequence[Sequence[float]], learn: bool, evidence: bool, key: str | None) -> Call:
    """Send features of images."""
    rows = [[float(value) for value in row] for row in features]
    content = {"features": rows}
    return Call("POST", f"/sessions/{id}/images", _how(learn, evidence), json=content, headers=_key(learn, key))


def image_bytes(image: Any) -> bytes:
    """Return the content of an image file from bytes, a path, or a PIL image, which is sent as PNG."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str | os.PathLike):
        return content_of(image, "image file")
    if hasattr(image, "save") and hasattr(image, "mode"):
        buffer = BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()
    raise Error(
        f"A {type(image).__name__} is not an image: give bytes, a path or a PIL image.", code="image-unreadable"
    )


def content_of(source: bytes | str | os.PathLike[str], what: str) -> bytes:
    """Return the content of a file, or the bytes that were given."""
    return source if isinstance(source, bytes) else read_regular(Path(source), what)


def problem_of(status: int, body: bytes, headers: Mapping[str, str]) -> ServerError:
    """Return the problem in an answer."""
    try:
        content = json.loads(body)
        detail, request_id = str(content["detail"]), content.get("request_id")
        code = str(content.get("type", "")).rpartition("/")[2] or None
    except (ValueError, KeyError, TypeError):
        detail, request_id, code = f"The server answered with status {status} and no sentence.", None, None
    wait = headers.get("retry-after", "")
    return ServerError(detail, status, request_id, float(wait) if wait.isdecimal() else None, code)


def wait_after(call: Call, status: int, body: bytes, headers: Mapping[str, str], tried: int) -> float:
    """Return the seconds until a failed call may be repeated; if it may not, the problem is raised."""
    problem = problem_of(status, body, headers)
    wait = wait_before(problem, tried, has_key=KEY in call.headers)
    if wait is None:
        raise problem
    return wait


def wait_before(problem: ServerError, tried: int, has_key: bool = False) -> float | None:
    """Return the seconds until a call may be repeated; None if it must not be, because images could be counted twice."""
    repeatable = problem.status in (429, 503) or (problem.code == MAYBE_COUNTED and has_key)
    if not repeatable or tried >= RETRIES:
        return None
    return min(LONGEST, (problem.retry_after or 1.0) * 1.5**tried)


class Following:
    """An event stream that is made again after a broken connection, from the last event on."""

    def __init__(self, id: str, after: int | None, url: str) -> None:
        self._id, self._after, self._url = id, after, url
        self._tried = 0

    def call(self) -> dict[str, Any]:
        """Return the arguments of the next request."""
        params = {} if self._after is None else {"after": self._after}
        return {"method": "GET", "url": f"/sessions/{self._id}/events", "params": params, "timeout": SILENCE}

    def event(self, sent: ServerSentEvent) -> Json:
        """Return an event as the client yields it."""
        self._tried = 0
        number = int(sent.id) if sent.id.isdecimal() else None
        self._after = self._after if number is None else number
        return {"id": number, "event": sent.event, "data": json.loads(sent.data)}

    def wait(self, problem: Exception | None) -> float | None:
        """Return the seconds until the next request, or None if the session was deleted; else the problem is raised."""
        if isinstance(problem, ServerError):
            if problem.status == 404 and self._after is not None:
                return None
            if problem.status == 404 or wait_before(problem, self._tried) is None:
                raise problem
        elif problem is not None and self._tried >= RETRIES:
            raise unreachable(self._url, problem)
        self._tried += 1
        return float(min(LONGEST, 0.2 * 2**self._tried))


def unreachable(url: str, problem: Exception) -> Error:
    """The error for a server that does not answer."""
    return Error(
        f"The server at {url} cannot be reached ({problem or type(problem).__name__}): check the address, and that it is running.",
        code="server-unreachable",
    )


def _key(learn: bool, key: str | None) -> dict[str, str]:
    """Return the header with the idempotency key, a random one if none was given."""
    return {KEY: key or secrets.token_hex(16)} if learn else {}


def _how(learn: bool, evidence: bool) -> dict[str, Any]:
    return {**({} if learn else {"learn": "false"}), **({"evidence": "true"} if evidence else {})}


def _type(content: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "application/octet-stream")
