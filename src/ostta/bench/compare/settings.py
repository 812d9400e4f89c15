"""In what two runs differ beside their figures: what was asked for, options as they applied, stream, weights, versions, machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..result import Result
from .sides import Pair

# What a person asked for or a run was made with; figures and times are compared elsewhere.
_PARTS = ("spec", "options", "stream", "weight_hash", "class_names_hash", "versions", "hardware", "threads")


@dataclass(frozen=True)
class Setting:
    """A field that differs, by its dotted name, as texts; a dash where one side does not have it."""

    field: str
    first: str
    second: str


def settings(pair: Pair) -> list[Setting]:
    """What differs in all seeds alike, and what differs in some, once."""
    found: dict[Setting, None] = {}
    for one, other in zip(pair.first, pair.second, strict=True):
        found.update(dict.fromkeys(_differing(one.result, other.result)))
    return list(found)


def common(pairs: Iterable[list[Setting]]) -> list[Setting]:
    """What differs in the same way in all pairs."""
    listed = list(pairs)
    return [each for each in listed[0] if all(each in other for other in listed[1:])] if listed else []


def _differing(first: Result, second: Result) -> Iterator[Setting]:
    one, other = (_flat("", result.model_dump(mode="json", include=set(_PARTS))) for result in (first, second))
    for field in sorted({*one, *other}, key=lambda name: (_PARTS.index(name.partition(".")[0]), name)):
        texts = [_text(side[field]) if field in side else "–" for side in (one, other)]
        if texts[0] != texts[1] and not _said_elsewhere(field, one, other):
            yield Setting(field, *texts)


def _said_elsewhere(field: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Options that were set are among those that applied; other options of another method follow from the method; notes are long."""
    part, _, name = field.partition(".")
    if part == "spec" and name.startswith("options"):
        return True
    alone = (field in one) != (field in other)
    was_set = any(f"spec.options.{name.rpartition('.')[2]}" in side for side in (one, other))
    return field.endswith(".note") or (part == "options" and alone and not was_set)


def _flat(name: str, value: Any) -> dict[str, Any]:
    """The values of nested objects by dotted names; lists stay whole."""
    if not isinstance(value, dict):
        return {name: value}
    return {
        field: single
        for key, part in value.items()
        for field, single in _flat(f"{name}.{key}" if name else str(key), part).items()
    }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
