"""The web application over an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from ..core.types import Error
from ..state import versions
from .api.openapi import described
from .api.routes import add_routes
from .api.shortcut import Shortcut
from .api.uploads import Bodies
from .engine import Engine
from .metrics import Metrics
from .middleware import App, Middleware
from .problems import INTERNAL, ClientGoneError, ProblemError, one_line, to_bytes
from .security import Tokens
from .settings import Settings

DASHBOARD = Path(__file__).parent / "dashboard"


def create_app(engine: Engine, settings: Settings | None = None, tokens: Tokens | None = None) -> App:
    """Create the ASGI application, which starts and stops `engine`.

    >>> from ostta.server import LocalEngine, create_app
    >>> app = create_app(LocalEngine(pool))
    """
    chosen, metrics = settings or Settings(), Metrics()

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
        description='Sessions of open-set test-time adaptation: classes in, images in, answers and "I don\'t know" out.',
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(ProblemError, _problem)
    app.add_exception_handler(Error, _problem)
    for status in (400, 404, 405):  # raised by the framework
        app.add_exception_handler(status, _problem)
    app.add_exception_handler(RequestValidationError, _problem)
    app.add_exception_handler(ClientGoneError, _nobody)
    # The middleware gets it too and logs it.
    app.add_exception_handler(Exception, _problem)
    judge = add_routes(app, engine, chosen, tokens or Tokens(), metrics, Bodies(chosen.limits))
    if (DASHBOARD / "index.html").is_file():
        app.mount("/static", _PageFiles(directory=DASHBOARD), name="static")

        @app.get("/", include_in_schema=False)
        async def page() -> FileResponse:
            return FileResponse(DASHBOARD / "index.html", headers={"cache-control": "no-cache"})

    app.openapi = lambda: described(app)  # type: ignore[method-assign]
    return Middleware(Shortcut(app, judge), chosen, tokens or Tokens(), metrics)


class _PageFiles(StaticFiles):
    """Static files that browsers revalidate each time, so that files of two versions are never mixed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["cache-control"] = "no-cache"
        return answer


async def _problem(request: Request, raised: Exception) -> Response:
    """Turn an exception into a problem."""
    if isinstance(raised, ProblemError):
        problem = raised
    elif isinstance(raised, RequestValidationError):
        first: dict[str, Any] = raised.errors()[0]
        status = 404 if first["loc"][0] == "path" else 422
        problem = ProblemError(status, f"`{first['loc'][-1]}`: {one_line(str(first['msg']), 200)}.")
    elif getattr(raised, "status_code", 0) in (400, 404, 405):
        problem = ProblemError(
            getattr(raised, "status_code", 404), f"There is no {request.method} {one_line(request.url.path, 100)} here."
        )
    elif isinstance(raised, Error):
        problem = ProblemError.of(raised)
    else:
        problem = ProblemError(500, INTERNAL)
    # Exceptions of the framework may have headers, such as Allow.
    own = getattr(raised, "headers", None)
    headers = {**(own if isinstance(own, dict) else {}), **problem.headers()}
    if problem.status in (408, 413):
        headers["connection"] = "close"
    request.state.problem = problem  # for the log
    return Response(to_bytes(problem.to_dict(request.state.request_id)), problem.status, headers)


async def _nobody(request: Request, raised: Exception) -> Response:
    """The client has disconnected; the status is for the log only."""
    return Response(status_code=499)
