"""Dependencies of the routes: the objects of the server, the token of a request, and the session that it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response

from ..engine import Engine, Json
from ..metrics import Metrics
from ..problems import ProblemError, short_line, to_bytes
from ..security import Token, Tokens
from ..sessions.store import is_id
from ..settings import Settings
from .events import Overview
from .uploads import Bodies

HEADERS = {"content-type": "application/json", "cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The objects that the routes of one server share."""

    engine: Engine
    settings: Settings
    tokens: Tokens
    metrics: Metrics
    bodies: Bodies
    overview: Overview

    async def require_session(self, token: Token, id: str) -> None:
        """Refuse an id that is not one, and a session that the token may not use."""
        if not is_id(id):
            raise ProblemError(404, "There is no session with that id.")
        if token.patterns and id not in token.patterns:
            # The answer does not reveal whether there is such a session.
            refused = ProblemError(403, "This token may not use that session.")
            try:
                name = await self.engine.name(id)
            except ProblemError:
                raise refused from None
            if not token.allows(id, name):
                raise refused

    async def body(self, request: Request, most: int, seconds: float | None = None) -> bytes:
        """Read the body of a request within limits of size and time."""
        async with self.bodies.read(request, most, seconds) as body:
            return body


def json_response(content: Json, status: int = 200, **headers: str) -> Response:
    """Return a JSON response that no cache may store."""
    return Response(to_bytes(content), status, {**HEADERS, **headers})


async def _context(request: Request) -> ServerContext:
    context: ServerContext = request.app.state.context
    return context


async def _token(request: Request) -> Token:
    token: Token = request.user
    return token


Context = Annotated[ServerContext, Depends(_context)]
RequestToken = Annotated[Token, Depends(_token)]


async def _session_id(context: Context, token: RequestToken, id: str) -> str:
    await context.require_session(token, id)
    return id


# The id in the path, of a session that the token may use.
SessionId = Annotated[str, Depends(_session_id)]


async def require_known_parameters(request: Request) -> None:
    """Refuse unknown query parameters: with a mistyped `?lern=false` the session would learn."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        choices = f"; there are {', '.join(known)}" if known else ""
        raise ProblemError(422, f"There is no parameter {short_line(unknown, 40)!r} here{choices}.")
