"""The base of everything that is written to and read from result files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from ..core.checks import one_line
from ..schema import first_problem as first_problem
from ..schema import problem_text


class FileModel(BaseModel):
    """Base of what is read from and written to files. Unknown fields are refused: a misspelt one is an error, not a silent default.

    So are numbers that JSON has no word for.
    """

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


def all_problems(problem: ValidationError, place: Callable[[tuple[Any, ...]], str] | None = None) -> list[str]:
    """Every place and what is wrong there. `place` says a place in words, where its numbers would tell a reader little."""
    errors = problem.errors()
    inner = [error["loc"] for error in errors]
    said = [
        one_line(problem_text(error, None if place is None else place(error["loc"])))
        for error in errors
        # A list that lost all it had to other problems is not itself one.
        if error["type"] != "too_short" or not any(loc[: len(error["loc"])] == error["loc"] != loc for loc in inner)
    ]
    return list(dict.fromkeys(said))
