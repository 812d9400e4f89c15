"""Middleware of the server, from the outside to the inside.

- `RequestMiddleware`: request ids, security headers, log lines and metrics, and answers to exceptions.
- `OriginMiddleware`: the Host and Origin headers.
- Starlette's `AuthenticationMiddleware` with `security.TokenBackend`: tokens and cookies.
- `LimitMiddleware`: requests in progress.

Starlette's CORSMiddleware is around all of them if other origins are allowed, and uvicorn reads `X-Forwarded-*`. The
libraries of the server do not replace these classes:

- Host: Starlette's TrustedHostMiddleware cannot allow all numeric addresses, which a server at 0.0.0.0 needs.
- Origin: CORSMiddleware adds headers, but lets requests of other origins through.
- Limits: uvicorn's `limit_concurrency` counts probes too, and one client without a token could use it up.
"""

from __future__ import annotations

import re
import secrets
import traceback
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from .logs import log
from .metrics import Metrics
from .problems import ClientGoneError, ProblemError, short_line
from .security import GUEST, HEADERS, PROBES, Names, Token, network_of
from .settings import Clock, Limits

K = TypeVar("K")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SAFE = ("GET", "HEAD", "OPTIONS")
# Headers that must not be repeated, because they decide about access.
SINGLE = (b"host", b"origin", b"authorization")


class RequestMiddleware:
    """Gives each request an id, adds security headers, answers exceptions, and logs and counts requests."""

    def __init__(self, app: ASGIApp, clock: Clock, metrics: Metrics) -> None:
        self._app, self._clock, self._metrics = app, clock, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began = self._clock.steady()
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        extra = [*HEADERS, (b"x-request-id", request_id.encode())]

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        problem: ProblemError | None = None
        try:
            await self._app(scope, receive, sending)
        except ClientGoneError:
            status = status or 499
        except Exception as raised:  # usually the application has answered it already
            problem = ProblemError.of(raised)
            if problem.status == 500:
                kind, trace = type(raised).__name__, traceback.format_exc()
                log("internal error", level="error", request_id=request_id, kind=kind, trace=trace)
        if problem is not None and not status:
            await problem.response(request_id)(scope, receive, sending)
        self._record(scope, status, problem or scope["state"].get("problem"), self._clock.steady() - began)

    def _record(self, scope: Scope, status: int, problem: ProblemError | None, seconds: float) -> None:
        method, route = scope["method"], getattr(scope.get("route"), "path", "other")
        self._metrics.answered(route, status, max(0.0, seconds))
        # Images that were answered are not logged: there are too many of them.
        if status >= 400 or (method not in _SAFE and not route.endswith("/images")):
            log(
                "request",
                level="error" if status in (500, 507) else "info",
                request_id=scope["state"]["request_id"],
                method=method,
                route=route,
                status=status,
                ms=round(1e3 * seconds, 1),
                **({} if problem is None else {"problem": problem.detail}),
            )


class OriginMiddleware:
    """Refuses requests for other host names, and requests that pages of other sites cause."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: dict[bytes, bytes] = dict(scope["headers"])
            if len(headers) != len(scope["headers"]):
                _require_single(scope)
            self._check(scope, headers)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._names.knows_host(host):
            raise ProblemError(
                421, f"This server has no name {short_line(host, 100)!r}; its operator can add one with --name."
            )
        if b"origin" in headers:
            origin = headers[b"origin"].decode("latin-1")
            if not self._names.knows_origin(origin, host):
                raise ProblemError(403, f"Pages of {short_line(origin, 100)!r} may not use this server.")
        # Browsers mark requests that another site caused. A link to the page itself is harmless.
        elif headers.get(b"sec-fetch-site") == b"cross-site" and (scope["method"], scope["path"]) != ("GET", "/"):
            raise ProblemError(403, "Pages of other sites may not use this server.")


def _require_single(scope: Scope) -> None:
    """Refuse a repeated header that decides about access: a proxy may have checked the other value."""
    names = [name for name, _ in scope["headers"]]
    for name in SINGLE:
        if names.count(name) > 1:
            raise ProblemError(400, f"This request has two `{name.decode()}` headers, and one is expected.")


class LimitMiddleware:
    """Limits the requests in progress: of all clients, of clients without a token, and event streams of a token."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._in_progress = 0
        # Requests in progress without a token, by client address.
        self._guests: Counter[str] = Counter()
        # Open event streams, by token.
        self._listeners: Counter[Token] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Probes of an orchestrator are answered even if a limit is reached.
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif scope["user"] is GUEST or scope["path"] == "/login":
            with self._guest((scope.get("client") or ("",))[0]):
                await self._app(scope, receive, send)
        else:
            with self._request(scope["user"], follows=scope["path"].endswith("/events")):
                await self._app(scope, receive, send)

    @contextmanager
    def _guest(self, host: str) -> Iterator[None]:
        address, limits = network_of(host), self._limits
        if self._guests[address] >= limits.guests or self._guests.total() >= limits.guests_in_all:
            raise ProblemError(429, "Too many requests without a token are in progress: send again later.", 1)
        with _counted(self._guests, address):
            yield

    @contextmanager
    def _request(self, token: Token, follows: bool) -> Iterator[None]:
        limits = self._limits
        if self._in_progress >= limits.requests:
            raise ProblemError(503, f"{limits.requests} requests are in progress, the limit: send again later.", 1)
        if follows and self._listeners[token] >= limits.listeners:
            raise ProblemError(
                429,
                f"This token has {limits.listeners} open event streams, which is the limit: close one.",
                5,
            )
        self._in_progress += 1
        try:
            with _counted(self._listeners, token) if follows else nullcontext():
                yield
        finally:
            self._in_progress -= 1


@contextmanager
def _counted(counter: Counter[K], key: K) -> Iterator[None]:
    """Count `key` inside the block."""
    counter[key] += 1
    try:
        yield
    finally:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
