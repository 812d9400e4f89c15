"""The OpenAPI description: addresses and parameters by FastAPI, bodies and answers by the models."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..problems import KINDS, MEDIA_TYPE
from . import models
from .models import EVENT_EXAMPLE, EXAMPLE_ID, POINT_EXAMPLE, PREDICTION_EXAMPLE, PROBLEM_EXAMPLE, SESSION_EXAMPLE

Schema = dict[str, Any]
FILE: Schema = {"type": "string", "format": "binary"}
TEXT: Schema = {"type": "string"}
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_STREAM = "id: 17\nevent: prediction\ndata: {}\n\n"


def schemas() -> dict[str, Schema]:
    """Return the schemas of all models by name."""
    found = [one for one in vars(models).values() if isinstance(one, type) and issubclass(one, BaseModel)]
    pairs: Any = [
        (one, "validation" if issubclass(one, models.Request) else "serialization")
        for one in found
        if one not in (BaseModel, models.Request, models.Answer)
    ]
    made: dict[str, Schema] = models_json_schema(pairs, ref_template="#/components/schemas/{model}")[1]["$defs"]
    for name, example in _EXAMPLES.items():
        made[name]["examples"] = [example]
    return made


_EXAMPLES: dict[str, Any] = {
    "Event": EVENT_EXAMPLE,
    "Session": SESSION_EXAMPLE,
    "Prediction": PREDICTION_EXAMPLE,
    "Predictions": {"predictions": [PREDICTION_EXAMPLE]},
    "Point": POINT_EXAMPLE,
    "Recent": {"points": [POINT_EXAMPLE], "events": [{"step": 121, "time": 1780000060.5, **EVENT_EXAMPLE}]},
    "Problem": PROBLEM_EXAMPLE,
}


def body(media: str, schema: Schema, example: Any = None) -> dict[str, Any]:
    """Return the content of one media type."""
    return {media: {"schema": schema, **({} if example is None else {"example": example})}}


def named(model: type[BaseModel]) -> Schema:
    """Return a reference to the schema of a model."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _json(model: type[BaseModel], example: Any) -> dict[str, Any]:
    return body("application/json", named(model), example)


_SESSION = _json(models.Session, SESSION_EXAMPLE)
_NEW = _json(models.NewSession, {"classes": ["cat", "dog"], "name": "door"})
_STATE = body("application/octet-stream", FILE)
_IMAGES = {
    **{kind: {"schema": FILE} for kind in ("image/jpeg", "image/png", "image/webp")},
    **body("multipart/form-data", {"type": "object", "properties": {"image": {"type": "array", "items": FILE}}}),
    **body(
        "application/json",
        {"oneOf": [named(models.ImagesInJson), named(models.FeaturesInJson)]},
        {"images": [_PNG]},
    ),
}
_PREDICTED = {
    "application/json": {
        "schema": {"anyOf": [named(models.Prediction), named(models.Predictions)]},
        "examples": {
            "one image as the body": {"value": PREDICTION_EXAMPLE},
            "several images, or JSON": {"value": {"predictions": [PREDICTION_EXAMPLE]}},
        },
    }
}

# By address and method: a summary, the body of the request, the status and the body of the answer, other statuses.
Operation = tuple[str, dict[str, Any] | None, int, dict[str, Any] | None, tuple[int, ...]]
_ONE = (404,)
DETAILS: dict[tuple[str, str], Operation] = {
    ("/health", "get"): ("Whether the process runs.", None, 200, _json(models.Status, {"status": "ok"}), ()),
    ("/ready", "get"): ("Whether the model answers.", None, 200, _json(models.Status, {"status": "ready"}), (503,)),
    ("/metrics", "get"): ("Metrics for Prometheus.", None, 200, body("text/plain", TEXT, "ostta_sessions 3.0\n"), ()),
    ("/info", "get"): ("The backbone, the names that a session may use, and the limits.", None, 200, body("application/json", {"type": "object"}, {"version": "0.1.0", "backbone": "embedded", "engine": "local"}), ()),
    ("/login", "post"): ("A cookie for a browser, in exchange for a token.", _json(models.Login, {"token": "your token"}), 204, None, (400, 408, 413, 422, 429)),
    ("/logout", "post"): ("Delete the cookie.", None, 204, None, ()),
    ("/sessions", "post"): ("Create a session.", _NEW, 201, _SESSION, (400, 413, 422, 503, 507)),
    ("/sessions", "get"): ("List all sessions that the token may use.", None, 200, _json(models.Sessions, {"sessions": [SESSION_EXAMPLE]}), ()),
    ("/sessions/import", "post"): ("Create a session from a state file.", _STATE, 201, _SESSION, (413, 422, 503, 507)),
    ("/events", "get"): ("All sessions, whenever something has changed, as server-sent events.", None, 200, body("text/event-stream", TEXT, "event: sessions\ndata: []\n\n"), (429,)),
    ("/sessions/{id}", "get"): ("One session.", None, 200, _SESSION, _ONE),
    ("/sessions/{id}", "patch"): ("Rename a session.", _json(models.Rename, {"name": "yard"}), 200, _SESSION, (*_ONE, 400, 413, 422)),
    ("/sessions/{id}", "delete"): ("Delete a session for good.", None, 204, None, (*_ONE, 507)),
    ("/sessions/{id}/images", "post"): ("Judge an image, or several, or features of images.", _IMAGES, 200, _PREDICTED, (*_ONE, 400, 408, 409, 413, 415, 422, 429, 503)),
    ("/sessions/{id}/recent", "get"): ("The last points and events.", None, 200, _json(models.Recent, {"points": [POINT_EXAMPLE], "events": []}), (*_ONE, 422)),
    ("/sessions/{id}/kept", "get"): ("The most or least certain of the recent images, where images are kept.", None, 200, _json(models.KeptImages, {"images": []}), (*_ONE, 422)),
    ("/sessions/{id}/events", "get"): ("Events of a session, as server-sent events.", None, 200, body("text/event-stream", TEXT, _STREAM), (*_ONE, 422, 429)),
    ("/sessions/{id}/state", "get"): ("The state file of a session.", None, 200, _STATE, _ONE),
    ("/sessions/{id}/state", "put"): ("Continue from a state file.", _STATE, 200, _SESSION, (*_ONE, 413, 422)),
    ("/sessions/{id}/{verb}", "post"): ("Freeze, thaw, roll back, reset or save.", None, 200, _json(models.Acted, {"event": EVENT_EXAMPLE, "session": SESSION_EXAMPLE}), (*_ONE, 409, 422, 507)),
}  # fmt: skip


def described(app: FastAPI) -> dict[str, Any]:
    """Return the whole description; computed once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path, methods in made["paths"].items():
            for method, operation in methods.items():
                _complete(operation, DETAILS[path, method])
        made["components"] = {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "ostta"},
            },
        }
        made["security"] = [{"token": []}, {"cookie": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _complete(operation: dict[str, Any], described: Operation) -> None:
    sentence, sent, status, answer, problems = described
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
            "content": body(MEDIA_TYPE, named(models.Problem), example),
        }
        if other in (429, 503):
            operation["responses"][str(other)]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
