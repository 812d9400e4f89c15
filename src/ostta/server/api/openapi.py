"""The OpenAPI description: each route describes its bodies and problems, and FastAPI adds addresses and parameters."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..problems import KINDS, MEDIA_TYPE, ProblemError
from . import models
from .models import EXAMPLE_ID, EXAMPLES

Schema = dict[str, Any]
# By media type.
Content = dict[str, Any]
FILE: Schema = {"type": "string", "format": "binary"}
TEXT: Schema = {"type": "string"}
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Problems of every route.
_COMMON = (401, 403, 421, 500, 503)


def media(kind: str, schema: Schema, example: Any = None) -> Content:
    """Return the content of one media type."""
    return {kind: {"schema": schema, **({} if example is None else {"example": example})}}


def reference(model: type[BaseModel]) -> Schema:
    """Return a reference to the schema of a model."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


STATE = media("application/octet-stream", FILE)
IMAGES = {
    **{kind: {"schema": FILE} for kind in ("image/jpeg", "image/png", "image/webp")},
    **media("multipart/form-data", {"type": "object", "properties": {"image": {"type": "array", "items": FILE}}}),
    **media(
        "application/json",
        {"oneOf": [reference(models.ImagesInJson), reference(models.FeaturesInJson)]},
        {"images": [_PNG]},
    ),
}
PREDICTIONS = {
    "application/json": {
        "schema": {"anyOf": [reference(models.Prediction), reference(models.Predictions)]},
        "examples": {
            "one image as the body": {"value": EXAMPLES[models.Prediction]},
            "several images, or JSON": {"value": EXAMPLES[models.Predictions]},
        },
    }
}


def operation(
    problems: tuple[int, ...] = (),
    answer: Content | type[BaseModel] | None = None,
    body: Content | type[BaseModel] | None = None,
    status: int = 200,
) -> dict[str, Any]:
    """Return arguments of a route decorator: statuses of problems, and the content of the answer and of the request.

    The docstring of the route is its summary.
    """
    responses = {other: _problem(other) for other in sorted({*_COMMON, *problems})}
    return {
        "status_code": status,
        "responses": {**({} if answer is None else {status: {"content": _content(answer)}}), **responses},
        "openapi_extra": None if body is None else {"requestBody": {"required": True, "content": _content(body)}},
    }


def _content(described: Content | type[BaseModel]) -> Content:
    if isinstance(described, dict):
        return described
    return media("application/json", reference(described), EXAMPLES[described])


def _problem(status: int) -> dict[str, Any]:
    example = ProblemError(status, f"{KINDS[status][1]}.").to_dict(EXAMPLES[models.Problem]["request_id"])
    headers = {"headers": {"Retry-After": {"schema": {"type": "integer"}}}} if status in (429, 503) else {}
    content = media(MEDIA_TYPE, reference(models.Problem), example)
    return {"description": example["title"], "content": content, **headers}


def described(app: FastAPI) -> dict[str, Any]:
    """Return the whole description; computed once."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for route in (route for methods in document["paths"].values() for route in methods.values()):
        route["summary"] = route.pop("description")
        # FastAPI adds its own 422 to every route with parameters.
        if MEDIA_TYPE not in route["responses"].get("422", {}).get("content", {MEDIA_TYPE: None}):
            del route["responses"]["422"]
        for parameter in route.get("parameters", ()):
            if parameter["name"] == "id":
                parameter["schema"] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
                parameter["example"] = EXAMPLE_ID
    document["components"] = {
        "schemas": schemas(),
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": "ostta"},
        },
    }
    document["security"] = [{"token": []}, {"cookie": []}]
    app.openapi_schema = document
    return document


def schemas() -> dict[str, Schema]:
    """Return the schemas of all models by name."""
    pairs: Any = [
        (model, "validation" if issubclass(model, models.Request) else "serialization")
        for model in vars(models).values()
        if isinstance(model, type) and issubclass(model, BaseModel) and model not in (BaseModel, models.Request)
    ]
    found: dict[str, Schema] = models_json_schema(pairs, ref_template="#/components/schemas/{model}")[1]["$defs"]
    for model, example in EXAMPLES.items():
        found[model.__name__].setdefault("examples", [example])
    return found
