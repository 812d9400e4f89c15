"""Routes of the server itself: probes, metrics, information, sign-in."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from ..problems import ProblemError
from ..security import COOKIE, COOKIE_SECONDS, METRICS
from . import models
from .dependencies import Context, RequestToken, json_response
from .openapi import TEXT, media, operation
from .uploads import json_object

router = APIRouter()
_INFO_EXAMPLE = {"version": "0.1.0", "backbone": "embedded", "engine": "local"}


@router.get("/health", **operation((), models.Status))
async def health() -> Response:
    """Whether the process runs."""
    return json_response({"status": "ok"})


@router.get("/ready", **operation((503,), models.Status))
async def ready(context: Context) -> Response:
    """Whether the model answers."""
    await context.engine.ready()
    return json_response({"status": "ready"})


@router.get("/metrics", **operation((), media("text/plain", TEXT, "ostta_sessions 3.0\n")))
async def metrics(context: Context, token: RequestToken) -> Response:
    """Metrics for Prometheus."""
    if token.patterns and METRICS not in token.patterns:
        raise ProblemError(403, "The metrics of the server require a token that is bound to /metrics or to nothing.")
    return Response(context.metrics.text(await context.engine.counts()), 200, {"content-type": CONTENT_TYPE_LATEST})


@router.get("/info", **operation((), media("application/json", {"type": "object"}, _INFO_EXAMPLE)))
async def info(context: Context) -> Response:
    """The backbone, the names that a session may use, and the limits."""
    return json_response(await context.engine.info())


@router.post("/login", **operation((400, 408, 413, 422, 429), body=models.Login, status=204))
async def login(request: Request, context: Context) -> Response:
    """A cookie for a browser, in exchange for a token."""
    limits, tokens = context.settings.limits, context.tokens
    content = json_object(await context.body(request, limits.login, limits.login_seconds))
    given = content.get("token")
    token = tokens.of_bearer(given) if isinstance(given, str) else None
    if token is None and tokens:
        raise ProblemError(401, "This token is not valid.")
    response = Response(status_code=204)
    if token is not None:
        response.set_cookie(
            COOKIE,
            tokens.cookie(token, context.settings.clock.wall()),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    return response


@router.post("/logout", **operation(status=204))
async def logout(request: Request, context: Context) -> Response:
    """Delete the cookie."""
    context.tokens.sign_out(request.cookies.get(COOKIE, ""), context.settings.clock.wall())
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response
