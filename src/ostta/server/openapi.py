"""The API in the words of OpenAPI 3.1: what FastAPI knows of addresses and parameters, and what is said here of bodies and answers."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .problems import KINDS, MEDIA_TYPE
from .schemas import (
    EVENT_EXAMPLE,
    EXAMPLE_ID,
    POINT_EXAMPLE,
    PREDICTION_EXAMPLE,
    PROBLEM_EXAMPLE,
    SCHEMAS,
    SESSION_EXAMPLE,
    Schema,
    listed,
    named,
    record,
)

FILE: Schema = {"type": "string", "format": "binary"}
_STATUS = record(status={"type": "string"})
_ACTED = {"event": EVENT_EXAMPLE, "session": SESSION_EXAMPLE}
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_STREAM = "id: 17\nevent: prediction\ndata: {}\n\n"


def body(media: str, schema: Schema, example: Any = None) -> dict[str, Any]:
    """Content of one type."""
    return {media: {"schema": schema, **({} if example is None else {"example": example})}}


def _json(schema: Schema, example: Any) -> dict[str, Any]:
    return body("application/json", schema, example)


_SESSION, _NEW = (
    _json(named("Session"), SESSION_EXAMPLE),
    _json(named("NewSession"), {"classes": ["cat", "dog"], "name": "door"}),
)
_STATE = body("application/octet-stream", FILE)
_IMAGES = {
    **{kind: {"schema": FILE} for kind in ("image/jpeg", "image/png", "image/webp")},
    **body("multipart/form-data", {"type": "object", "properties": {"image": listed(FILE)}}),
    **_json(
        {
            "oneOf": [
                record(images=listed({"type": "string", "contentEncoding": "base64"}, minItems=1)),
                record(features=listed(listed({"type": "number"}, minItems=1), minItems=1)),
            ]
        },
        {"images": [_PNG]},
    ),
}
_PREDICTED = {
    "application/json": {
        "schema": {"anyOf": [named("Prediction"), named("Predictions")]},
        "examples": {
            "one image as it is": {"value": PREDICTION_EXAMPLE},
            "several, or in JSON": {"value": {"predictions": [PREDICTION_EXAMPLE]}},
        },
    }
}

# By address and method: a sentence, the body that is sent, the status and the body of the answer, and what else it may be.
Said = tuple[str, dict[str, Any] | None, int, dict[str, Any] | None, tuple[int, ...]]
_ONE = (404,)
DETAILS: dict[tuple[str, str], Said] = {
    ("/health", "get"): ("Whether the process lives.", None, 200, _json(_STATUS, {"status": "ok"}), ()),
    ("/ready", "get"): ("Whether the model answers.", None, 200, _json(_STATUS, {"status": "ready"}), (503,)),
    ("/metrics", "get"): ("Figures for Prometheus.", None, 200, body("text/plain", {"type": "string"}, "ostta_sessions 3.0\n"), ()),
    ("/info", "get"): ("The backbone, what a session may name, and the limits.", None, 200, _json({"type": "object"}, {"version": "0.1.0", "backbone": "embedded", "engine": "local"}), ()),
    ("/login", "post"): ("A cookie for a browser, in exchange for a token.", _json(record(token={"type": "string"}), {"token": "your token"}), 204, None, (400, 408, 413, 422, 429)),
    ("/logout", "post"): ("Take the cookie back.", None, 204, None, ()),
    ("/sessions", "post"): ("A new session.", _NEW, 201, _SESSION, (400, 413, 422, 503, 507)),
    ("/sessions", "get"): ("All sessions that the token may use.", None, 200, _json(record(sessions=listed(named("Session"))), {"sessions": [SESSION_EXAMPLE]}), ()),
    ("/sessions/import", "post"): ("A new session from a state file.", _STATE, 201, _SESSION, (413, 422, 503, 507)),
    ("/events", "get"): ("All sessions, whenever something has changed, as server-sent events.", None, 200, body("text/event-stream", {"type": "string"}, "event: sessions\ndata: []\n\n"), (429,)),
    ("/sessions/{id}", "get"): ("One session.", None, 200, _SESSION, _ONE),
    ("/sessions/{id}", "patch"): ("Another name for a session.", _json(record(name={"type": "string", "minLength": 1, "maxLength": 200}), {"name": "yard"}), 200, _SESSION, (*_ONE, 400, 413, 422)),
    ("/sessions/{id}", "delete"): ("Forget a session for good.", None, 204, None, (*_ONE, 507)),
    ("/sessions/{id}/images", "post"): ("Judge an image, or several, or features of images.", _IMAGES, 200, _PREDICTED, (*_ONE, 400, 408, 409, 413, 415, 422, 429, 503)),
    ("/sessions/{id}/recent", "get"): ("The last points and events.", None, 200, _json(named("Recent"), {"points": [POINT_EXAMPLE], "events": []}), (*_ONE, 422)),
    ("/sessions/{id}/kept", "get"): ("The most or least certain of the recent images, where images are kept.", None, 200, _json(record(images=listed({"type": "object"})), {"images": []}), (*_ONE, 422)),
    ("/sessions/{id}/events", "get"): ("What happens in a session, as server-sent events.", None, 200, body("text/event-stream", {"type": "string"}, _STREAM), (*_ONE, 422, 429)),
    ("/sessions/{id}/state", "get"): ("The state file of a session.", None, 200, _STATE, _ONE),
    ("/sessions/{id}/state", "put"): ("Go on from a state file.", _STATE, 200, _SESSION, (*_ONE, 413, 422)),
    ("/sessions/{id}/{verb}", "post"): ("Freeze, thaw, roll back, reset or save.", None, 200, _json(record(event=named("Event"), session=named("Session")), _ACTED), (*_ONE, 409, 422, 507)),
}  # fmt: skip


def described(app: FastAPI) -> dict[str, Any]:
    """The whole description; made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path, methods in made["paths"].items():
            for method, operation in methods.items():
                _complete(operation, DETAILS[path, method])
        made["components"] = {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "ostta"},
            },
        }
        made["security"] = [{"token": []}, {"cookie": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _complete(operation: dict[str, Any], said: Said) -> None:
    sentence, sent, status, answer, problems = said
    operation["summary"] = sentence
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "id":
            parameter["schema"], parameter["example"] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}, EXAMPLE_ID
    if sent is not None:
        operation["requestBody"] = {"required": True, "content": sent}
    operation["responses"] = {str(status): {"description": sentence, **({} if answer is None else {"content": answer})}}
    for other in sorted({401, 403, 421, 500, 503, *problems}):
        kind, title = KINDS[other]
        example = {
            **PROBLEM_EXAMPLE,
            "type": f"/problems/{kind}",
            "title": title,
            "status": other,
            "detail": f"{title}.",
        }
        operation["responses"][str(other)] = {
            "description": title,
            "content": body(MEDIA_TYPE, named("Problem"), example),
        }
        if other in (429, 503):
            operation["responses"][str(other)]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
