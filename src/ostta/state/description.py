"""What the JSON of a state file says, checked by type and bound before anything is built from it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from ..config.declare import PROFILES, describe_type, types_of
from ..config.registry import (
    Component,
    ComponentKind,
    Components,
    check_components,
    find_saved_component,
    require_known,
)
from ..config.resolve import SOURCES, Resolved, options_classes, rebuild
from ..core.checks import LARGEST_SEED, MOST_STEPS, shown
from ..core.types import Error
from ..io import is_unicode

# Far more than is of use, and few enough that checking them takes no time.
MOST_TEXT, MOST_NAME, MOST_CLASSES, MOST_ENTRIES = 32 * 2**20, 10_000, 1_000_000, 1_000


@dataclass(frozen=True, slots=True)
class SavedBackbone:
    """The backbone that a state was saved on."""

    id: str
    weight_hash: str
    restorable: bool


@dataclass(frozen=True, slots=True)
class ComponentClasses:
    """The method, the score and the identifier of a state, from somebody who knows them. A file names registered ones only."""

    method: str | type[Any] | None = None
    score: str | type[Any] | None = None
    identifier: str | type[Any] | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything about a state but its tensors."""

    backbone: SavedBackbone
    classes: tuple[str, ...]
    choice: Components
    profile: str
    options: Resolved
    seed: int
    step: int
    versions: dict[str, str]

    @classmethod
    def read(cls, content: dict[str, Any], given: ComponentClasses | None = None) -> Description:
        """The description in `content`; an Error says what is missing, too much, or not what it must be."""
        given = given or ComponentClasses()
        names = [field.name for field in dataclasses.fields(cls) if field.name != "choice"]
        _require_keys(content, [*names, "method", "score", "identifier", "option_sources"], "state")
        backbone = _object(content["backbone"], "backbone")
        _require_keys(backbone, [field.name for field in dataclasses.fields(SavedBackbone)], "backbone")
        if not re.fullmatch("[0-9a-f]{64}", _text(backbone["weight_hash"], "weight_hash")):
            raise Error(f"`weight_hash` is 64 hexadecimal digits, not {shown(backbone['weight_hash'])}.")
        if not isinstance(backbone["restorable"], bool):
            raise Error(f"`restorable` is true or false, not {shown(backbone['restorable'])}.")
        choice = saved_components(content, given)
        classes = content["classes"]
        if not isinstance(classes, list) or not 1 <= len(classes) <= MOST_CLASSES:
            raise Error(f"`classes` is a list of 1 to {MOST_CLASSES:,} names, not {shown(classes)}.")
        return cls(
            SavedBackbone(_text(backbone["id"], "id"), backbone["weight_hash"], backbone["restorable"]),
            tuple(_text(name, "classes") for name in classes),
            choice,
            require_known(_text(content["profile"], "profile"), PROFILES, "profile"),
            _options(choice, content["options"], content["option_sources"]),
            _whole(content["seed"], "seed", LARGEST_SEED),
            _whole(content["step"], "step", MOST_STEPS),
            _texts(content["versions"], "versions"),
        )


def saved_components(content: dict[str, Any], given: ComponentClasses) -> Components:
    """The method, the score and the identifier that a file names."""

    def found(kind: ComponentKind, given: str | type[Any] | None) -> Component:
        return find_saved_component(kind, _text(content[kind], kind), given)

    return check_components(
        found("method", given.method), found("score", given.score), found("identifier", given.identifier)
    )


def read_json(text: str) -> dict[str, Any]:
    """The JSON object in `text`, in which no name is twice and every number is one."""
    if len(text) > MOST_TEXT:
        raise Error(f"its description has {len(text):,} characters, and {MOST_TEXT:,} are the most.")
    try:
        content = json.loads(text, object_pairs_hook=_once, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise Error("its description is nested too deeply.") from None
    except ValueError as problem:
        raise Error(f"its description is not JSON ({shown(str(problem))}).") from None
    return _object(content, "description")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise Error("its description has a name twice.")
    return content


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Error(f"its description holds {shown(text)} in the place of a number.")
    return number


def _require_keys(content: dict[str, Any], names: Collection[str], what: str) -> None:
    for name in names:
        if name not in content:
            raise Error(f"The {what} is incomplete: `{name}` is not in its description.")
    for name in content:
        if name not in names:
            raise Error(f"The description of the {what} has an entry {shown(name)}, which this version does not know.")


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_ENTRIES:
        raise Error(f"`{name}` is a JSON object, not {shown(value)}.")
    return value


def _text(value: Any, name: str) -> str:
    if not _is_text(value):
        raise Error(f"`{name}` takes Unicode text of at most {MOST_NAME:,} characters, not {shown(value)}.")
    named: str = value
    return named


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_NAME and is_unicode(value)


def _texts(value: Any, name: str) -> dict[str, str]:
    return {_text(key, name): _text(text, name) for key, text in _object(value, name).items()}


def _whole(value: Any, name: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise Error(f"`{name}` is a whole number from 0 to {most}, not {shown(value)}.")
    return value


def _options(choice: Components, values: Any, sources: Any) -> Resolved:
    """Options that came after the file was written are in neither of the two, and have their defaults."""
    values, sources = _object(values, "options"), _object(sources, "option_sources")
    owned = options_classes(choice, guard="guard" in values)  # without one, files are as before there was a guard
    for name, content in (("options", values), ("option_sources", sources)):
        if content.keys() != owned.keys():
            raise Error(
                f"`{name}` is by owner, {', '.join(owned)}, and {shown(min(content.keys() ^ owned.keys()))} is not right."
            )
    for owner, options in owned.items():
        _require_fitting(_object(values[owner], "options"), _texts(sources[owner], "option_sources"), types_of(options))
    return rebuild(choice, values, sources)


def _require_fitting(values: dict[str, Any], sources: dict[str, str], hints: dict[str, Any]) -> None:
    if values.keys() != sources.keys():
        odd = min(values.keys() ^ sources.keys())
        raise Error(f"`options` and `option_sources` must name the same options, and {shown(odd)} is in one of them.")
    for name, source in sources.items():
        if source not in SOURCES:
            raise Error(f"The source of the option {shown(name)} is one of {', '.join(SOURCES)}, not {shown(source)}.")
    for name, hint in hints.items():
        if name in values and not _fits(values[name], hint):
            raise Error(f"`{name}` takes {describe_type(hint)}, not {shown(values[name])}.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is what `json.dumps` makes of the type `hint`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin is tuple:
        return isinstance(value, list) and len(value) <= MOST_ENTRIES and all(_fits(v, arguments[0]) for v in value)
    if origin is types.UnionType:
        return any(value is None if option is type(None) else _fits(value, option) for option in arguments)
    single: dict[Any, Callable[[], bool]] = {
        bool: lambda: isinstance(value, bool),
        int: lambda: type(value) is int,
        float: lambda: type(value) in (int, float),
        str: lambda: _is_text(value),
    }
    return hint in single and single[hint]()
