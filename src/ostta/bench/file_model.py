"""The base of everything that is written to and read from result files."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from ..core.checks import one_line


class FileModel(BaseModel):
    """No unknown fields: a misspelt one is an error, not a silent default. No number that JSON has no word for."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Fields that came after the first version: written only where they differ from their defaults, so that files and
    # keys of runs that do without them stay as they were.
    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                content.pop(name, None)
        return content


def first_problem(problem: ValidationError) -> str:
    """Where in the content and what, for the end of a sentence."""
    first = problem.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the whole"
    return one_line(f"{place}: {first['msg']}")
