"""Lists of class names, from what a person types or keeps in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ostta.core.types import Error


def parse_classes(text_or_file: str | os.PathLike[str]) -> list[str]:
    """Class names from "cat,dog,ship", from a text file with one name per line, or from a JSON list (typed or in a file).

    >>> parse_classes("cat, dog, ship")
    ['cat', 'dog', 'ship']
    """
    text = os.fspath(text_or_file).strip()
    if os.path.isfile(text):
        names = _names_in_file(Path(text))
    elif not isinstance(text_or_file, str) or text.lower().endswith((".txt", ".json")):
        raise Error(f"there is no file of class names '{text}'")
    elif text.startswith("["):
        names = _names_in_json(text, "the list of class names")
    else:
        names = text.split(",")
    return list(checked_classes([name.strip() for name in names if name.strip()]))


def checked_classes(names: Sequence[str]) -> tuple[str, ...]:
    """`names`, once they are known to be a list of different, non-empty names."""
    if isinstance(names, str):
        raise Error(f"the classes must be a list of names, not the one text {names!r}")
    if not names:
        raise Error('no class names were given: give them as "cat,dog,ship" or as a file with one name per line')
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise Error(f"class number {position} is {name!r}: a class name must be a text that is not empty")
    repeated = sorted({name for name in names if list(names).count(name) > 1})
    if repeated:
        raise Error(f"the class name '{repeated[0]}' was given more than once: names must differ")
    return tuple(names)


def spoken(name: str) -> str:
    """A class name as it is said in a prompt: data sets write "maple_tree"."""
    return name.replace("_", " ").strip()


def _names_in_file(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Error(f"the class names in '{path}' cannot be read: {problem}") from problem
    if path.suffix.lower() == ".json" or text.startswith("["):
        return _names_in_json(text, f"the file '{path}'")
    return text.splitlines()


def _names_in_json(text: str, where: str) -> list[str]:
    try:
        names = json.loads(text)
    except json.JSONDecodeError as problem:
        raise Error(f"{where} is not valid JSON: {problem}") from problem
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Error(f'{where} must be a JSON list of names, such as ["cat", "dog"]')
    return names
