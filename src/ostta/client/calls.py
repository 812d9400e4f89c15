"""Construction of requests and interpretation of responses, without network access."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import import_extra
from ..core.types import Error
from ..io import read_regular

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

Json = dict[str, Any]
# Maximum number of retries if the server is busy.
RETRIES = 5
# Maximum delay before a retry and default response timeout, in seconds.
LONGEST, TIMEOUT = 30.0, 90.0
# Time without data, in seconds, after which an event stream is considered broken. The server sends regular pings.
SILENCE = 60.0
# Header of the idempotency key, and error code of a request that may have been processed.
KEY, MAYBE_COUNTED = "idempotency-key", "maybe-counted"
_MAGIC = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}


class ServerError(Error):
    """An error reported by the server, with its message, HTTP `status`, and `request_id` in the server log.

    `code` is the type of error, such as "not-found". "maybe-counted" means that the session may have learned from the
    images of the failed request.

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


def import_httpx() -> Any:
    """Import the HTTP library when the first client is created."""
    return import_extra("httpx", "A client", "serve")


def import_sse() -> Any:
    """Import the library that reads server-sent events."""
    return import_extra("httpx_sse", "Following a session", "serve")


def image_request(
    id: str, learn: bool, evidence: bool, key: str | None, headers: Mapping[str, str] | None = None, **content: Any
) -> Json:
    """Return the httpx arguments of a request with images. Without `key`, a random key is used."""
    params = {**({} if learn else {"learn": "false"}), **({"evidence": "true"} if evidence else {})}
    sent = {**(headers or {}), **({KEY: key or secrets.token_hex(16)} if learn else {})}
    return {"method": "POST", "url": f"/sessions/{id}/images", "params": params, "headers": sent, **content}


def image_bytes(image: Any) -> bytes:
    """Return the content of an image file from bytes, a path, or a PIL image, which is encoded as PNG."""
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
    """Return the content of a file, or `source` itself if it is bytes."""
    return source if isinstance(source, bytes) else read_regular(Path(source), what)


def problem_of(status: int, body: bytes, headers: Mapping[str, str]) -> ServerError:
    """Return the error described by a response."""
    try:
        content = json.loads(body)
        detail, request_id = str(content["detail"]), content.get("request_id")
        code = str(content.get("type", "")).rpartition("/")[2] or None
    except (ValueError, KeyError, TypeError):
        detail, request_id, code = f"The server answered with status {status} and no error message.", None, None
    wait = headers.get("retry-after", "")
    return ServerError(detail, status, request_id, float(wait) if wait.isdecimal() else None, code)


def wait_after(arguments: Mapping[str, Any], status: int, body: bytes, headers: Mapping[str, str], tried: int) -> float:
    """Return the delay in seconds before a failed request is retried. Raise the error if it must not be retried."""
    problem = problem_of(status, body, headers)
    wait = wait_before(problem, tried, has_key=KEY in arguments.get("headers", ()))
    if wait is None:
        raise problem
    return wait


def wait_before(problem: ServerError, tried: int, has_key: bool = False) -> float | None:
    """Return the delay in seconds before a retry, or None if a retry could process images twice."""
    repeatable = problem.status in (429, 503) or (problem.code == MAYBE_COUNTED and has_key)
    if not repeatable or tried >= RETRIES:
        return None
    return min(LONGEST, (problem.retry_after or 1.0) * 1.5**tried)


class Following:
    """State of an event stream that resumes after the last event if the connection breaks."""

    def __init__(self, id: str, after: int | None, url: str) -> None:
        self._id, self._after, self._url = id, after, url
        self._tried = 0

    def call(self) -> dict[str, Any]:
        """Return the arguments of the next request."""
        params = {} if self._after is None else {"after": self._after}
        return {"method": "GET", "url": f"/sessions/{self._id}/events", "params": params, "timeout": SILENCE}

    def event(self, sent: ServerSentEvent) -> Json:
        """Convert a server-sent event to the form that the client yields."""
        self._tried = 0
        number = int(sent.id) if sent.id.isdecimal() else None
        self._after = self._after if number is None else number
        return {"id": number, "event": sent.event, "data": json.loads(sent.data)}

    def wait(self, problem: Exception | None) -> float | None:
        """Return the delay in seconds before the next request, or None if the session was deleted.

        Other errors are raised.
        """
        if isinstance(problem, ServerError):
            if problem.status == 404 and self._after is not None:
                return None
            if wait_before(problem, self._tried) is None:
                raise problem
        elif problem is not None and self._tried >= RETRIES:
            raise unreachable(self._url, problem)
        self._tried += 1
        return float(min(LONGEST, 0.2 * 2**self._tried))


def unreachable(url: str, problem: Exception) -> Error:
    """Return the error for a server that does not respond."""
    return Error(
        f"The server at {url} cannot be reached ({problem or type(problem).__name__}): check the address, and that it "
        "is running.",
        code="server-unreachable",
    )


def media_type(content: bytes) -> str:
    """Return the media type of an image file."""
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "application/octet-stream")
