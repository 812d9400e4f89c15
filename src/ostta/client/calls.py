"""What a client asks, and what an answer means; without any network."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from ..core.types import Error
from ..io import read_regular

Json = dict[str, Any]
# So often a call is made again where the server says that it has too much to do.
RETRIES = 5
# Seconds: the longest that is waited before a call is made again, and for an answer.
LONGEST, TIMEOUT = 30.0, 90.0
# Events come with signs of life between them: after so many seconds of silence the connection is broken.
SILENCE = 60.0
# The header with an idempotency key, and the code of a problem that leaves open whether a request was counted.
KEY, MAYBE_COUNTED = "idempotency-key", "maybe-counted"
_MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}


class ServerError(Error):
    """What the server answered in the place of what was asked: its sentence, the `status`, and the `request_id` for its log.

    `code` is the kind of the problem, such as "not-found"; "maybe-counted" means that images may have been learned from.

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
        """As httpx takes them."""
        return {
            "params": self.params,
            "json": self.json,
            "content": self.content,
            "files": self.files,
            "headers": self.headers,
        }

    def for_stream(self) -> dict[str, Any]:
        """The same for an answer that is read as it comes."""
        return {"params": self.params, "headers": self.headers}


def needed_httpx() -> Any:
    """The library that speaks HTTP, imported when a client is made."""
    try:
        import httpx
    except ModuleNotFoundError:
        raise Error("A client needs httpx: pip install 'ostta[serve]'.") from None
    return httpx


def create(classes: Any, name: str | None, options: Mapping[str, Any]) -> Call:
    """A new session; `options` are those of `POST /sessions`."""
    wanted = {"classes": classes, **({} if name is None else {"name": name}), **options}
    return Call("POST", "/sessions", json=wanted)


def create_from(state: bytes | str | os.PathLike[str], name: str | None) -> Call:
    """A new session from a state file."""
    return Call(
        "POST", "/sessions/import", {} if name is None else {"name": name}, content=content_of(state, "state file")
    )


def replace_state(id: str, state: bytes | str | os.PathLike[str]) -> Call:
    """Another state for a session."""
    return Call("PUT", f"/sessions/{id}/state", content=content_of(state, "state file"))


def send(id: str, image: Any, learn: bool, evidence: bool, key: str | None) -> Call:
    """One image as it is."""
    content = image_bytes(image)
    return Call(
        "POST",
        f"/sessions/{id}/images",
        _how(learn, evidence),
        content=content,
        headers={"content-type": _type(content), **_key(learn, key)},
    )


def send_many(id: str, images: Sequence[Any], learn: bool, evidence: bool, key: str | None) -> Call:
    """Several images, as files of a form."""
    contents = [image_bytes(image) for image in images]
    files = [("image", (f"{number}", content, _type(content))) for number, content in enumerate(contents)]
    return Call("POST", f"/sessions/{id}/images", _how(learn, evidence), files=files, headers=_key(learn, key))


def send_features(id: str, features: Sequence[Sequence[float]], learn: bool, evidence: bool, key: str | None) -> Call:
    """Features of images."""
    rows = [[float(value) for value in row] for row in features]
    content = {"features": rows}
    return Call("POST", f"/sessions/{id}/images", _how(learn, evidence), json=content, headers=_key(learn, key))


def follow(id: str, after: int | None) -> Call:
    """What happens in a session."""
    headers = {"accept": "text/event-stream"}
    return Call("GET", f"/sessions/{id}/events", {} if after is None else {"after": after}, headers=headers)


def image_bytes(image: Any) -> bytes:
    """The content of an image file: of bytes, of a path, or of a PIL image, which is sent as PNG."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str | os.PathLike):
        return content_of(image, "image file")
    if hasattr(image, "save") and hasattr(image, "mode"):
        buffer = BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()
    raise Error(f"An image is sent as bytes, as a path or as a PIL image, not as a {type(image).__name__}.")


def content_of(source: bytes | str | os.PathLike[str], what: str) -> bytes:
    """The content of a file, or the bytes that were given."""
    return source if isinstance(source, bytes) else read_regular(Path(source), what)


def problem_of(status: int, body: bytes, headers: Mapping[str, str]) -> ServerError:
    """The problem that an answer tells of."""
    try:
        content = json.loads(body)
        detail, request_id = str(content["detail"]), content.get("request_id")
        code = str(content.get("type", "")).rpartition("/")[2] or None
    except (ValueError, KeyError, TypeError):
        detail, request_id, code = f"The server answered with status {status} and no sentence.", None, None
    wait = headers.get("retry-after", "")
    return ServerError(detail, status, request_id, float(wait) if wait.isdecimal() else None, code)


def wait_after(call: Call, status: int, body: bytes, headers: Mapping[str, str], tried: int) -> float:
    """Seconds until a call that was answered with a problem may be made again; else the problem is raised."""
    problem = problem_of(status, body, headers)
    wait = wait_before(problem, tried, has_key=KEY in call.headers)
    if wait is None:
        raise problem
    return wait


def wait_before(problem: ServerError, tried: int, has_key: bool = False) -> float | None:
    """Seconds until the call may be made again; None if that is of no use, or if the images could be counted twice."""
    repeatable = problem.status in (429, 503) or (problem.code == MAYBE_COUNTED and has_key)
    if not repeatable or tried >= RETRIES:
        return None
    return min(LONGEST, (problem.retry_after or 1.0) * 1.5**tried)


def event_of(lines: Sequence[str]) -> Json | None:
    """One server-sent event; None for a mere sign of life."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name in ("id", "event", "data"):
            found[name] = value.removeprefix(" ")
    if "data" not in found:
        return None
    number = found.get("id", "")
    return {
        "id": int(number) if number.isdecimal() else None,
        "event": found.get("event", "message"),
        "data": json.loads(found["data"]),
    }


class Events:
    """Server-sent events from the lines of an answer."""

    def __init__(self, after: int | None) -> None:
        self.last = after
        self._lines: list[str] = []

    def add(self, line: str) -> Iterator[Json]:
        """The event that the line ends, if it does."""
        if line:
            self._lines.append(line)
            return
        event, self._lines = event_of(self._lines), []
        if event is not None:
            self.last = self.last if event["id"] is None else event["id"]
            yield event


def _key(learn: bool, key: str | None) -> dict[str, str]:
    """The header with the idempotency key, a random one if none was given: a call that is made again is learned from once."""
    return {KEY: key or secrets.token_hex(16)} if learn else {}


def _how(learn: bool, evidence: bool) -> dict[str, Any]:
    return {**({} if learn else {"learn": "false"}), **({"evidence": "true"} if evidence else {})}


def _type(content: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "application/octet-stream")
