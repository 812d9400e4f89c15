"""The web application over an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp

from ..core.types import Error
from ..state import versions
from .api import images, server, sessions
from .api.dependencies import ServerContext, require_known_parameters
from .api.events import Overview
from .api.images import Shortcut
from .api.openapi import described
from .api.uploads import Bodies
from .engine import Engine
from .metrics import Metrics
from .middleware import LimitMiddleware, OriginMiddleware, RequestMiddleware
from .problems import ClientGoneError, ProblemError, short_line
from .security import Names, TokenBackend, Tokens
from .settings import Settings

DASHBOARD = Path(__file__).parent / "dashboard"
# The statuses are those of exceptions of the framework. An unexpected exception also reaches `RequestMiddleware`, which
# logs it.
HANDLED: tuple[int | type[Exception], ...] = (ProblemError, Error, RequestValidationError, Exception, 400, 404, 405)


def create_app(engine: Engine, settings: Settings | None = None, tokens: Tokens | None = None) -> ASGIApp:
    """Create the ASGI application, which starts and stops `engine`.

    >>> from ostta.server import LocalEngine, create_app
    >>> app = create_app(LocalEngine(pool))
    """
    settings, tokens, metrics = settings or Settings(), tokens or Tokens(), Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.stop()

    app = FastAPI(
        title="ostta",
        version=versions().get("ostta", "unknown"),
        description="Sessions of open-set test-time adaptation: classes in, images in, "
        'answers and "I don\'t know" out.',
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={**dict.fromkeys(HANDLED, _problem), ClientGoneError: _client_gone},
    )
    context = ServerContext(engine, settings, tokens, metrics, Bodies(settings.limits), Overview(engine))
    app.state.context = context
    for routes in (images, server, sessions):
        app.include_router(
            routes.router, dependencies=[Depends(require_known_parameters)], default_response_class=Response
        )
    if (DASHBOARD / "index.html").is_file():
        app.mount("/static", _PageFiles(directory=DASHBOARD), name="static")

        @app.get("/", include_in_schema=False)
        async def page() -> FileResponse:
            return FileResponse(DASHBOARD / "index.html", headers={"cache-control": "no-cache"})

    app.openapi = lambda: described(app)  # type: ignore[method-assign]
    limited = LimitMiddleware(Shortcut(app, context), settings.limits)
    authenticated = AuthenticationMiddleware(limited, TokenBackend(tokens, settings.clock))
    checked = OriginMiddleware(authenticated, Names(settings.hosts, settings.cors))
    answered = RequestMiddleware(checked, settings.clock, metrics)
    if not settings.cors:
        return answered
    return CORSMiddleware(
        answered,
        settings.cors,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-Id"),
        expose_headers=("Location", "Retry-After", "X-Request-Id"),
    )


class _PageFiles(StaticFiles):
    """Static files that browsers revalidate each time, so that files of two versions are never mixed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["cache-control"] = "no-cache"
        return answer


async def _problem(request: Request, raised: Exception) -> Response:
    """Turn an exception into a problem."""
    if isinstance(raised, RequestValidationError):
        first: dict[str, Any] = raised.errors()[0]
        status = 404 if first["loc"][0] == "path" else 422
        problem = ProblemError(status, f"`{first['loc'][-1]}`: {short_line(str(first['msg']), 200)}.")
    elif isinstance(raised, HTTPException):
        path = short_line(request.url.path, 100)
        problem = ProblemError(raised.status_code, f"There is no {request.method} {path} here.")
    else:
        problem = ProblemError.of(raised)
    request.state.problem = problem  # for the log
    # Exceptions of the framework may have headers, such as Allow.
    return problem.response(request.state.request_id, getattr(raised, "headers", None))


async def _client_gone(request: Request, raised: Exception) -> Response:
    """The client has disconnected; the status is for the log only."""
    return Response(status_code=499)
