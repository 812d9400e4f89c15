"""A fast path for most requests, images without parameters: routing in FastAPI would cost as much as everything else."""

from __future__ import annotations

import re
from types import SimpleNamespace

from fastapi import Request

from ..middleware import App, Receive, Scope, Send
from .routes import Judge

_IMAGES = re.compile(r"/sessions/([0-9a-f]{32})/images")
# The route in logs and metrics.
_ROUTE = SimpleNamespace(path="/sessions/{id}/images")


class Shortcut:
    """In front of the application. The middleware answers exceptions that are raised here."""

    def __init__(self, app: App, judge: Judge) -> None:
        self._app, self._judge = app, judge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]:
            found = _IMAGES.fullmatch(scope["path"])
            if found is not None:
                scope["route"] = _ROUTE
                response = await self._judge(Request(scope, receive, send), found[1])
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
