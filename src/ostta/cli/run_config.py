"""`ostta run --config run.toml`: options in a file. Options on the command line take precedence.

method = "rosita"
desired = "folder:pets"
undesired-classes = ["ferret", "parrot"]
limit = 500
seeds = [0, 1, 2]
[set]
lr = [1e-3, 3e-3]
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import typer

from ..config.registry import suggest
from ..core.errors import translate_errors
from ..core.types import Error


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the values of the file as defaults of the command."""
    if path is None:
        return None
    with (
        translate_errors("file-unreadable", f"The configuration {path} cannot be read ({{reason}}).", OSError),
        translate_errors("config-invalid", f"The configuration {path} is not TOML ({{reason}}).", ValueError),
    ):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {option.lstrip("-"): each for each in context.command.params for option in each.opts}
    found: dict[str, Any] = {}
    problems = []
    for name, value in content.items():
        parameter = known.get(name.replace("_", "-"))
        if parameter is None or parameter.name in (None, "config"):
            problems.append(f"there is no option {name!r}{suggest(name, sorted(set(known) - {'config', 'help'}))}")
        elif isinstance(value, dict) != (name == "set"):
            problems.append(f"{name!r} {'is a table of options' if name == 'set' else 'is not a table'}")
        else:
            found[str(parameter.name)] = _as_typed(value)
    if problems:
        raise Error(f"The configuration {path} cannot be used: {'; '.join(problems)}.", code="config-invalid")
    context.default_map = {**(context.default_map or {}), **found}
    return path


def _as_typed(value: Any) -> Any:
    """Return a value as it is written on the command line. An entry of a list may contain a comma."""
    if isinstance(value, dict):
        return [f"{name}={_json(each) if isinstance(each, list) else _as_typed(each)}" for name, each in value.items()]
    if isinstance(value, list):
        texts = [str(_as_typed(each)) for each in value]
        return _json(texts) if any("," in text for text in texts) else ",".join(texts)
    return value if isinstance(value, bool) else str(value)


def _json(values: list[Any]) -> str:
    return json.dumps(values, ensure_ascii=False, default=str)
