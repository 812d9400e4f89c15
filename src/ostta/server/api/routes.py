"""The addresses of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Header, Query, Request, Response
from sse_starlette import EventSourceResponse

from .. import metrics as metrics_module
from ..engine import Engine, Json
from ..metrics import Metrics
from ..problems import ProblemError, one_line, to_bytes
from ..security import COOKIE, SIGNED_IN, Token, Tokens
from ..sessions.idempotency import HEADER, checked_key
from ..sessions.store import is_id
from ..settings import Settings
from .events import Overview, session_events
from .models import NewSession, Rename, parsed
from .uploads import Bodies, json_object, parsed_images

# Answers a request with images for a session.
Judge = Callable[[Request, str], Awaitable[Response]]
JSON = {"content-type": "application/json", "cache-control": "no-store"}


def add_routes(
    app: FastAPI, engine: Engine, settings: Settings, tokens: Tokens, metrics: Metrics, bodies: Bodies
) -> Judge:
    """Add all addresses; returns the function that answers requests with images, for `Shortcut`."""
    limits = settings.limits
    overview = Overview(engine)
    app.router.dependencies.append(Depends(_require_known_parameters))

    async def allowed(request: Request, id: str) -> None:
        token: Token = request.state.token
        if not is_id(id):
            raise ProblemError(404, "There is no session of that id.")
        if token.patterns and id not in token.patterns:
            # The answer does not reveal whether there is such a session.
            refused = ProblemError(403, "This token may not use that session.")
            try:
                name = await engine.name(id)
            except ProblemError:
                raise refused from None
            if not token.allows(id, name):
                raise refused

    async def body_of(request: Request, most: int, seconds: float | None = None) -> bytes:
        with bodies.body() as body:
            return await body.read(request.receive, most, request.headers.get("content-length"), seconds)

    def answered(content: Json, status: int = 200, **headers: str) -> Response:
        return Response(to_bytes(content), status, {**JSON, **headers})

    # --- images -----------------------------------------------------------------------------------------------------------
    async def judged(request: Request, id: str, learn: bool = True, evidence: bool = False) -> Response:
        await allowed(request, id)
        key = checked_key(request.headers.get(HEADER))
        with bodies.body() as body:
            content = await body.read(request.receive, limits.body, request.headers.get("content-length"))
            sent, alone = await parsed_images(request.headers.get("content-type", ""), content, limits.images)
            found = await engine.images(id, sent, learn, evidence, key)
        if not alone:
            return answered({"predictions": found})
        if "problem" in found[0]:
            detail = found[0]["problem"]["detail"]
            if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                detail += " With curl, send a file with --data-binary @FILE, as -d changes it."
            problem = found[0]["problem"]
            raise ProblemError(problem["status"], detail, code=problem["type"].rpartition("/")[2])
        return answered(found[0])

    @app.post("/sessions/{id}/images")
    async def images(
        request: Request,
        id: str,
        learn: bool = True,
        evidence: bool = False,
        # Declared for OpenAPI only; `judged` reads it, because `Shortcut` does not call this function.
        idempotency_key: Annotated[str | None, Header()] = None,
    ) -> Response:
        return await judged(request, id, learn, evidence)

    # --- the server -------------------------------------------------------------------------------------------------------
    @app.get("/health")
    async def health() -> Response:
        return answered({"status": "ok"})

    @app.get("/ready")
    async def ready() -> Response:
        await engine.ready()
        return answered({"status": "ready"})

    @app.get("/metrics")
    async def metrics_text(request: Request) -> Response:
        if request.state.token.patterns:
            raise ProblemError(403, "The figures of the whole server need a token that is not bound to sessions.")
        return Response(metrics.text(await engine.counts()), 200, {"content-type": metrics_module.MEDIA_TYPE})

    @app.get("/info")
    async def info() -> Response:
        return answered(await engine.info())

    @app.post("/login", status_code=204)
    async def login(request: Request) -> Response:
        content = json_object(await body_of(request, limits.login, limits.login_seconds))
        given = content.get("token")
        found = tokens.of_bearer(given) if isinstance(given, str) else None
        if found is None and tokens:
            raise ProblemError(401, "This token is not valid.")
        response = Response(status_code=204)
        if found is not None:
            response.set_cookie(
                COOKIE,
                tokens.cookie(found, settings.clock.wall()),
                max_age=SIGNED_IN,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
        return response

    @app.post("/logout", status_code=204)
    async def logout(request: Request) -> Response:
        tokens.sign_out(request.cookies.get(COOKIE, ""), settings.clock.wall())
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    # --- sessions ---------------------------------------------------------------------------------------------------------
    def may_create(token: Token, name: object) -> None:
        # Sessions are stored under the name without surrounding spaces, so that name is checked.
        if token.patterns and not token.allows(None, name.strip() if isinstance(name, str) else None):
            raise ProblemError(403, f"This token may make sessions of certain names only: {', '.join(token.patterns)}.")

    def created(session: Json) -> Response:
        return answered(session, 201, location=f"/sessions/{session['id']}")

    @app.post("/sessions", status_code=201)
    async def create(request: Request) -> Response:
        content = json_object(await body_of(request, limits.json))
        may_create(request.state.token, content.get("name"))
        return created(await engine.create(parsed(NewSession, content).model_dump(exclude_none=True)))

    @app.post("/sessions/import", status_code=201)
    async def create_from(request: Request, name: str | None = None) -> Response:
        may_create(request.state.token, name)
        return created(await engine.create_from(await body_of(request, limits.state), name))

    @app.get("/sessions")
    async def sessions(request: Request) -> Response:
        token: Token = request.state.token
        return answered({"sessions": [one for one in await engine.sessions() if token.allows(one["id"], one["name"])]})

    @app.get("/events")
    async def events(request: Request) -> EventSourceResponse:
        return overview.response(request.state.token)

    @app.get("/sessions/{id}")
    async def session(request: Request, id: str) -> Response:
        await allowed(request, id)
        return answered(await engine.session(id))

    @app.patch("/sessions/{id}")
    async def rename(request: Request, id: str) -> Response:
        await allowed(request, id)
        content = json_object(await body_of(request, limits.json))
        name = parsed(Rename, content).name
        if id not in request.state.token.patterns:
            may_create(request.state.token, name)
        return answered(await engine.rename(id, name))

    @app.delete("/sessions/{id}", status_code=204)
    async def delete(request: Request, id: str) -> Response:
        await allowed(request, id)
        await engine.delete(id)
        return Response(status_code=204)

    # --- history --------------------------------------------------------------------------------------------------
    @app.get("/sessions/{id}/recent")
    async def recent(request: Request, id: str, limit: Annotated[int, Query(ge=0, le=10_000)] = 500) -> Response:
        await allowed(request, id)
        return answered(await engine.recent(id, limit))

    @app.get("/sessions/{id}/kept")
    async def kept(request: Request, id: str, which: Literal["most", "least"] = "most") -> Response:
        await allowed(request, id)
        return answered({"images": await engine.kept(id, which)})

    @app.get("/sessions/{id}/events")
    async def session_stream(
        request: Request,
        id: str,
        after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> EventSourceResponse:
        await allowed(request, id)
        await engine.session(id)
        if last_event_id and last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 16:
            after = int(last_event_id)  # sent by a browser that reconnects
        return session_events(engine.follow(id, after))

    # --- the state --------------------------------------------------------------------------------------------------------
    @app.get("/sessions/{id}/state")
    async def state(request: Request, id: str) -> Response:
        await allowed(request, id)
        headers = {"content-disposition": f'attachment; filename="{id[:8]}.ostta"', "cache-control": "no-store"}
        return Response(await engine.state(id), 200, headers, "application/octet-stream")

    @app.put("/sessions/{id}/state")
    async def replace_state(request: Request, id: str) -> Response:
        await allowed(request, id)
        return answered(await engine.replace_state(id, await body_of(request, limits.state)))

    @app.post("/sessions/{id}/{verb}")
    async def act(request: Request, id: str, verb: Literal["freeze", "thaw", "roll-back", "reset", "save"]) -> Response:
        await allowed(request, id)
        return answered(await engine.act(id, verb))

    return judged


async def _require_known_parameters(request: Request) -> None:
    """Refuse unknown parameters: with a mistyped `?lern=false` the session would learn."""
    route = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None and route.include_in_schema:
        there = f"; there are {', '.join(known)}" if known else ""
        raise ProblemError(422, f"There is no parameter {one_line(unknown, 40)!r} here{there}.")
