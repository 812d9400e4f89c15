"""Base of the pydantic models of untrusted files: strict types, bounded text, one-line messages.

Import this module inside the functions that read a file, because `import ostta` must not import pydantic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .core.checks import one_line, shown
from .core.types import Error
from .io import parse_json

# Limits far above any real file. They bound the time and the memory that a damaged file can use.
MAX_CHARACTERS = 32 * 2**20
MAX_CLASSES = 1_000_000
MAX_ENTRIES = 1_000

Text = Annotated[str, Field(max_length=10_000)]
Texts = Annotated[dict[Text, Text], Field(max_length=MAX_ENTRIES)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

# Shorter than the messages of pydantic, which use the terms "input" and "extra inputs".
_MESSAGES = {"extra_forbidden": "there is no such field", "missing": "the field is missing"}

Model = TypeVar("Model", bound=BaseModel)


class StrictModel(BaseModel):
    """Base of the models, which rejects unknown fields, converted types and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in `text`; raise an Error if it is too long, invalid, or has a duplicate name."""
    if len(text) > MAX_CHARACTERS:
        raise Error(f"It has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}.", code="file-too-large")
    try:
        content = parse_json(text, _without_duplicates)
    except ValueError as problem:
        raise Error(f"It is not valid JSON: {shown(str(problem))}.", code="file-invalid") from None
    if not isinstance(content, dict):
        raise Error("It is not a JSON object.", code="file-invalid")
    return content


def validate(model: type[Model], content: Mapping[str, Any]) -> Model:
    """Return the parsed JSON `content` as `model`; raise an Error that names the first invalid entry."""
    try:
        # As JSON, because a list in a file corresponds to a tuple of the model.
        return model.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as problem:
        raise Error(f"{first_problem(problem)}.", code="file-invalid") from None


def first_problem(problem: ValidationError) -> str:
    """Return the place and the message of the first problem, on one line."""
    return one_line(problem_text(problem.errors()[0]))


def problem_text(error: Any, place: str | None = None) -> str:
    """Return one problem of a `ValidationError` as text; `place` replaces the path of the entry."""
    where = ".".join(_name(part) for part in error["loc"]) if place is None else place
    # pydantic adds this prefix to the message of a validator.
    what = _MESSAGES.get(error["type"], error["msg"].removeprefix("Value error, "))
    return f"{where}: {what}" if where else what


def _name(part: object) -> str:
    """Return one part of a path; a name from the file may be long or contain control characters."""
    text = str(part)
    return text if len(text) <= 80 and text.isprintable() else shown(text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return content
