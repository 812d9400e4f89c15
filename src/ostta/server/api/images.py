"""The route that judges images, and a fast path to it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..problems import ProblemError
from ..sessions.idempotency import HEADER, checked_key
from .dependencies import Context, ServerContext, json_response
from .openapi import IMAGES, PREDICTIONS, operation
from .uploads import sent_images

PATH = "/sessions/{id}/images"
_ADDRESS = re.compile(r"/sessions/([0-9a-f]{32})/images")
# Stands for the route in logs and metrics.
_ROUTE = SimpleNamespace(path=PATH)

router = APIRouter()


@router.post(PATH, **operation((400, 404, 408, 409, 413, 415, 422, 429, 503), PREDICTIONS, IMAGES))
async def images(
    request: Request,
    context: Context,
    id: str,
    learn: bool = True,
    evidence: bool = False,
    # Declared for OpenAPI only: `judge` reads it, because `Shortcut` does not call this function.
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Judge an image, or several, or features of images."""
    return await judge(context, request, id, learn, evidence)


async def judge(
    context: ServerContext, request: Request, id: str, learn: bool = True, evidence: bool = False
) -> Response:
    """Answer a request with images for a session."""
    limits, kind = context.settings.limits, request.headers.get("content-type", "")
    await context.require_session(request.user, id)
    key = checked_key(request.headers.get(HEADER))
    async with context.bodies.read(request, limits.body) as content:
        sent, alone = await sent_images(kind, content, limits.images)
        answers = await context.engine.images(id, sent, learn, evidence, key)
    if not alone:
        return json_response({"predictions": answers})
    problem = answers[0].get("problem")
    if problem is None:
        return json_response(answers[0])
    detail = problem["detail"]
    if kind.startswith("application/x-www-form-urlencoded"):
        detail += " With curl, send a file with --data-binary @FILE, as -d changes it."
    raise ProblemError(problem["status"], detail, code=problem["type"].rpartition("/")[2])


class Shortcut:
    """A fast path for images without parameters, which are most requests: routing would cost as much as all else.

    The middleware answers exceptions that are raised here.
    """

    def __init__(self, app: ASGIApp, context: ServerContext) -> None:
        self._app, self._context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]:
            match = _ADDRESS.fullmatch(scope["path"])
            if match is not None:
                scope["route"] = _ROUTE
                response = await judge(self._context, Request(scope, receive, send), match[1])
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
