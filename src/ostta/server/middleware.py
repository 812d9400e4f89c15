"""Checks of every request (Host, Origin, token, limits), and headers, log lines and metrics of every answer."""

from __future__ import annotations

import re
import secrets
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeVar

from ..core.types import Error
from .logs import log
from .metrics import Metrics
from .problems import INTERNAL, ClientGoneError, ProblemError, one_line, to_bytes
from .security import ANYBODY, COOKIE, GUEST, HEADERS, Names, Token, Tokens, network_of
from .settings import Settings

K = TypeVar("K")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SAFE = ("GET", "HEAD", "OPTIONS")
# Headers that must not be repeated, because they decide about access.
SINGLE = (b"host", b"origin", b"authorization")
# Probes of an orchestrator, which are answered even if the limit of requests is reached.
PROBES = ("/health", "/ready")
# Paths without a token: probes, and the page with the sign-in form.
OPEN = (*PROBES, "/login", "/logout", "/", "/favicon.ico")


class Middleware:
    """Wraps the application."""

    def __init__(self, app: App, settings: Settings, tokens: Tokens, metrics: Metrics) -> None:
        self._app, self._settings, self._tokens, self._metrics = app, settings, tokens, metrics
        self._names = Names(settings.hosts, settings.cors)
        self._inside = 0
        # Requests in progress without a token, by client address.
        self._guests: Counter[str] = Counter()
        # Open event streams, by token.
        self._listeners: Counter[Token] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began = self._settings.clock.steady()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        extra = [*HEADERS, (b"x-request-id", request_id.encode()), *self._cors(headers)]

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        problem: ProblemError | None = None
        try:
            if len(headers) != len(scope["headers"]):
                _require_single(scope)
            self._check_origin(scope, headers)
            if not await self._preflight(scope, headers, sending):
                token = scope["state"]["token"] = self._token(scope, headers)
                with self._slot(scope, token):
                    await self._app(scope, receive, sending)
        except ProblemError as raised:
            problem = raised
        except Error as raised:
            problem = ProblemError.of(raised)
        except ClientGoneError:
            status = status or 499
        except Exception as raised:  # usually the application has answered it already
            problem = ProblemError(500, INTERNAL)
            log(
                "internal error",
                level="error",
                request_id=request_id,
                kind=type(raised).__name__,
                trace=traceback.format_exc(),
            )
        if problem is not None and not status:
            await answer_problem(problem, request_id, sending)
        self._note(scope, request_id, status, problem, self._settings.clock.steady() - began)

    @contextmanager
    def _slot(self, scope: Scope, token: Token) -> Iterator[None]:
        """Count the request as in progress, or refuse it if a limit is reached."""
        limits = self._settings.limits
        if scope["path"] in PROBES:
            yield
        elif token is GUEST or scope["path"] == "/login":
            address = network_of((scope.get("client") or ("",))[0])
            if self._guests[address] >= limits.guests or self._guests.total() >= limits.guests_in_all:
                raise ProblemError(429, "Too many requests without a token are in progress: send again later.", 1)
            with _counted(self._guests, address):
                yield
        else:
            if self._inside >= limits.requests:
                raise ProblemError(
                    503, f"{limits.requests} requests are being answered at this time: send again later.", 1
                )
            follows = scope["path"].endswith("/events")
            if follows and self._listeners[token] >= limits.listeners:
                raise ProblemError(
                    429,
                    f"{limits.listeners} event streams are being sent to this token, the most at one time: close one.",
                    5,
                )
            self._inside += 1
            try:
                with _counted(self._listeners, token) if follows else nullcontext():
                    yield
            finally:
                self._inside -= 1

    def _note(self, scope: Scope, request_id: str, status: int, problem: ProblemError | None, seconds: float) -> None:
        route = scope.get("route")
        template = getattr(route, "path", "other") if route is not None else "other"
        self._metrics.answered(template, status, max(0.0, seconds))
        # Images that were answered are not logged: there are too many of them.
        if status >= 400 or (scope["method"] not in _SAFE and not template.endswith("/images")):
            fields: dict[str, Any] = {
                "method": scope["method"],
                "route": template,
                "status": status,
                "ms": round(1e3 * seconds, 1),
            }
            problem = problem or scope["state"].get("problem")
            if problem is not None:
                fields["problem"] = problem.detail
            log("request", level="error" if status in (500, 507) else "info", request_id=request_id, **fields)

    # --- Host and Origin --------------------------------------------------------------------------------------------------
    def _check_origin(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._names.knows_host(host):
            raise ProblemError(
                421, f"This server has no name {one_line(host, 100)!r}; its operator can add one with --name."
            )
        origin = headers.get(b"origin")
        if origin is not None:
            if not self._names.knows_origin(origin.decode("latin-1"), host):
                raise ProblemError(
                    403, f"Pages of {one_line(origin.decode('latin-1'), 100)!r} may not use this server."
                )
        # Browsers mark requests that another site caused. A link to the page itself is harmless.
        elif headers.get(b"sec-fetch-site") == b"cross-site" and not (
            scope["method"] == "GET" and scope["path"] == "/"
        ):
            raise ProblemError(403, "Pages of other sites may not use this server.")

    def _cors(self, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        origin = headers.get(b"origin")
        if origin is None or not self._names.is_named(origin.decode("latin-1")):
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"vary", b"Origin"),
            (b"access-control-expose-headers", b"Location, Retry-After, X-Request-Id"),
        ]

    async def _preflight(self, scope: Scope, headers: dict[bytes, bytes], send: Send) -> bool:
        """Answer a CORS preflight request; returns whether it was one."""
        if scope["method"] != "OPTIONS" or b"access-control-request-method" not in headers:
            return False
        allowed = self._cors(headers)
        if allowed:
            allowed = [
                (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
                (
                    b"access-control-allow-headers",
                    b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id",
                ),
                (b"access-control-max-age", b"600"),
            ]
        await send({"type": "http.response.start", "status": 204 if allowed else 403, "headers": allowed})
        await send({"type": "http.response.body", "body": b""})
        return True

    # --- tokens -----------------------------------------------------------------------------------------------------------
    def _token(self, scope: Scope, headers: dict[bytes, bytes]) -> Token:
        """Return the token of a request."""
        if not self._tokens:
            return ANYBODY
        bearer = headers.get(b"authorization")
        if bearer is not None:
            kind, _, text = bearer.decode("latin-1").partition(" ")
            found = self._tokens.of_bearer(text.strip()) if kind.lower() == "bearer" else None
        else:
            cookie = _cookie(headers.get(b"cookie"))
            found = None if cookie is None else self._tokens.of_cookie(cookie, self._settings.clock.wall())
        path = scope["path"]
        if found is None and path not in OPEN and not path.startswith("/static/"):
            raise ProblemError(
                401, "This server wants a token: send it as `Authorization: Bearer TOKEN`, or sign in at /."
            )
        return found or GUEST


def _require_single(scope: Scope) -> None:
    """Refuse a repeated header that decides about access: a proxy may have checked the other value."""
    names = [name for name, _ in scope["headers"]]
    for name in SINGLE:
        if names.count(name) > 1:
            raise ProblemError(400, f"This request has two `{name.decode()}` headers, and one is expected.")


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


def _cookie(header: bytes | None) -> str | None:
    if header is None:
        return None
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


async def answer_problem(problem: ProblemError, request_id: str | None, send: Send) -> None:
    """Send a problem as the answer."""
    body = to_bytes(problem.to_dict(request_id))
    headers = [(name.encode(), value.encode()) for name, value in problem.headers().items()]
    # The rest of the body would be parsed as the next request.
    headers += [
        (b"content-length", str(len(body)).encode()),
        *([(b"connection", b"close")] if problem.status in (408, 413) else []),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
