"""Routes of sessions, except the one for images."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from sse_starlette import EventSourceResponse
from starlette.responses import Response

from ..engine import Json
from ..problems import ProblemError
from ..security import Token
from . import models
from .dependencies import Context, RequestToken, SessionId, json_response
from .events import session_events
from .models import parsed
from .openapi import STATE, TEXT, media, operation
from .uploads import json_object

router = APIRouter()
_STREAM = "id: 17\nevent: prediction\ndata: {}\n\n"


def _require_creatable(token: Token, name: object) -> None:
    """Refuse a name that the token may not give to a session."""
    # Sessions are stored under the name without surrounding spaces, so that name is checked.
    if token.patterns and not token.allows(None, name.strip() if isinstance(name, str) else None):
        raise ProblemError(403, f"This token may only create sessions with these names: {', '.join(token.patterns)}.")


def _created(session: Json) -> Response:
    return json_response(session, 201, location=f"/sessions/{session['id']}")


@router.post("/sessions", **operation((400, 413, 422, 503, 507), models.Session, models.NewSession, 201))
async def create(request: Request, context: Context, token: RequestToken) -> Response:
    """Create a session."""
    content = json_object(await context.body(request, context.settings.limits.json))
    _require_creatable(token, content.get("name"))
    return _created(await context.engine.create(parsed(models.NewSession, content).model_dump(exclude_none=True)))


@router.post("/sessions/import", **operation((413, 422, 503, 507), models.Session, STATE, 201))
async def create_from(request: Request, context: Context, token: RequestToken, name: str | None = None) -> Response:
    """Create a session from a state file."""
    _require_creatable(token, name)
    state = await context.body(request, context.settings.limits.state)
    return _created(await context.engine.create_from(state, name))


@router.get("/sessions", **operation((), models.Sessions))
async def sessions(context: Context, token: RequestToken) -> Response:
    """List all sessions that the token may use."""
    listed = [each for each in await context.engine.sessions() if token.allows(each["id"], each["name"])]
    return json_response({"sessions": listed})


@router.get("/events", **operation((429,), media("text/event-stream", TEXT, "event: sessions\ndata: []\n\n")))
async def events(context: Context, token: RequestToken) -> EventSourceResponse:
    """All sessions, whenever something has changed, as server-sent events."""
    return context.overview.response(token)


@router.get("/sessions/{id}", **operation((404,), models.Session))
async def session(context: Context, id: SessionId) -> Response:
    """One session."""
    return json_response(await context.engine.session(id))


@router.patch("/sessions/{id}", **operation((400, 404, 413, 422), models.Session, models.Rename))
async def rename(request: Request, context: Context, token: RequestToken, id: SessionId) -> Response:
    """Rename a session."""
    content = json_object(await context.body(request, context.settings.limits.json))
    name = parsed(models.Rename, content).name
    if id not in token.patterns:
        _require_creatable(token, name)
    return json_response(await context.engine.rename(id, name))


@router.delete("/sessions/{id}", **operation((404, 507), status=204))
async def delete(context: Context, id: SessionId) -> Response:
    """Delete a session for good."""
    await context.engine.delete(id)
    return Response(status_code=204)


# --- history ----------------------------------------------------------------------------------------------------------
@router.get("/sessions/{id}/recent", **operation((404, 422), models.Recent))
async def recent(context: Context, id: SessionId, limit: Annotated[int, Query(ge=0, le=10_000)] = 500) -> Response:
    """The last points and events."""
    return json_response(await context.engine.recent(id, limit))


@router.get("/sessions/{id}/kept", **operation((404, 422), models.KeptImages))
async def kept(context: Context, id: SessionId, which: Literal["most", "least"] = "most") -> Response:
    """The most or least certain of the recent images, where images are kept."""
    return json_response({"images": await context.engine.kept(id, which)})


@router.get("/sessions/{id}/events", **operation((404, 422, 429), media("text/event-stream", TEXT, _STREAM)))
async def follow(
    context: Context,
    id: SessionId,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    """Events of a session, as server-sent events."""
    await context.engine.session(id)
    if last_event_id and last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 16:
        after = int(last_event_id)  # sent by a browser that reconnects
    return session_events(context.engine.follow(id, after))


# --- the state --------------------------------------------------------------------------------------------------------
@router.get("/sessions/{id}/state", **operation((404,), STATE))
async def state(context: Context, id: SessionId) -> Response:
    """The state file of a session."""
    headers = {"content-disposition": f'attachment; filename="{id[:8]}.ostta"', "cache-control": "no-store"}
    return Response(await context.engine.state(id), 200, headers, "application/octet-stream")


@router.put("/sessions/{id}/state", **operation((404, 413, 422), models.Session, STATE))
async def replace_state(request: Request, context: Context, id: SessionId) -> Response:
    """Continue from a state file."""
    content = await context.body(request, context.settings.limits.state)
    return json_response(await context.engine.replace_state(id, content))


@router.post("/sessions/{id}/{verb}", **operation((404, 409, 422, 507), models.Acted))
async def act(
    context: Context, id: SessionId, verb: Literal["freeze", "thaw", "roll-back", "reset", "save"]
) -> Response:
    """Freeze, thaw, roll back, reset or save."""
    return json_response(await context.engine.act(id, verb))
