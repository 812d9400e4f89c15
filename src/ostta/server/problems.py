"""Errors as problem details (RFC 9457): one sentence for people, a status and a type for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ..core.checks import one_line
from ..core.types import Error

# By status: the last part of the type, and the title.
KINDS = {
    400: ("bad-request", "The request cannot be understood"),
    401: ("no-token", "A token is needed"),
    403: ("not-allowed", "Not allowed"),
    404: ("not-found", "Not found"),
    405: ("wrong-method", "This cannot be done here"),
    408: ("too-slow", "The request took too long"),
    409: ("conflict", "Not possible at this time"),
    413: ("too-large", "Too large"),
    415: ("wrong-type", "This kind of content is not read"),
    421: ("wrong-host", "This server is not called so"),
    422: ("not-usable", "The content cannot be used"),
    429: ("too-many", "Too many requests"),
    500: ("internal", "Something went wrong inside the server"),
    503: ("busy", "Not available at this time"),
    507: ("not-stored", "The state cannot be stored"),
}
# The request may have been counted. If it is sent again without an idempotency key, it may be counted twice.
MAYBE_COUNTED = "maybe-counted"
MEDIA_TYPE = "application/problem+json"
INTERNAL = "Something went wrong inside the server; its log has the details under the id of this request."


class ProblemError(Exception):
    """An error answer. `detail` is one sentence; `code` replaces the type that `KINDS` has for the status.

    >>> str(ProblemError(404, "There is no session 'abc'."))
    "There is no session 'abc'."
    """

    def __init__(self, status: int, detail: str, retry_after: int | None = None, code: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after, self.code = status, detail, retry_after, code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.detail, self.retry_after, self.code)

    @classmethod
    def of(cls, raised: Exception) -> ProblemError:
        """Return the answer to an exception: an `Error` is about the content of the request, others are unexpected."""
        if isinstance(raised, cls):
            return raised
        if isinstance(raised, Error):
            return cls(422, short_line(str(raised)), code=raised.code if raised.code != Error.code else None)
        return cls(500, INTERNAL)

    def to_dict(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the JSON of the answer."""
        kind, title = KINDS[self.status]
        content = {
            "type": f"/problems/{self.code or kind}",
            "title": title,
            "status": self.status,
            "detail": self.detail,
        }
        return content if request_id is None else {**content, "request_id": request_id}

    def response(self, request_id: str, headers: Mapping[str, str] | None = None) -> Response:
        """Return the answer, with additional `headers`."""
        headers = {**(headers or {}), "content-type": MEDIA_TYPE, "cache-control": "no-store"}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status == 401:
            headers["www-authenticate"] = 'Bearer realm="ostta"'
        if self.status in (408, 413):
            # The rest of the body would be parsed as the next request.
            headers["connection"] = "close"
        return Response(to_bytes(self.to_dict(request_id)), self.status, headers)


def shutting_down(retry_after: int = 5) -> ProblemError:
    """Return the answer of a server that is being stopped."""
    return ProblemError(503, "The server is shutting down.", retry_after)


def served_elsewhere() -> ProblemError:
    """Return the answer for a session whose lease another process has taken."""
    return ProblemError(503, "Another process serves this session now: send the request again.", 1)


def unknown_session(id: str) -> ProblemError:
    """Return the answer for an id that no session has."""
    return ProblemError(404, f"There is no session {short_line(id, 40)!r}.")


class ClientGoneError(Exception):
    """The client disconnected before its request was read."""


def short_line(text: str, most: int = 500) -> str:
    """Return `text` on one line, shortened, and without characters that cannot be encoded."""
    line = one_line(text).encode("utf-8", "replace").decode()
    return line if len(line) <= most else f"{line[: most - 1]}…"


def to_bytes(content: Mapping[str, Any]) -> bytes:
    """Encode a JSON answer."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
