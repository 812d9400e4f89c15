"""Lists of class names, from what a person types or keeps in a file."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ..core.types import Error
from ..files import is_unicode, parse_json


def parse_classes(text_or_file: str | os.PathLike[str]) -> list[str]:
    """Class names from "cat,dog,ship", from a text file with one name per line, or from a JSON list (typed or in a file).

    >>> parse_classes("cat, dog, ship")
    ['cat', 'dog', 'ship']
    """
    text = os.fspath(text_or_file).strip()
    if os.path.isfile(text):
        names = _names_in_file(Path(text))
    elif not isinstance(text_or_file, str) or text.lower().endswith((".txt", ".json")):
        raise Error(f"There is no file of class names '{text}'.")
    elif text.startswith("["):
        names = _names_in_json(text, "The list of class names")
    else:
        names = text.split(",")
    return list(checked_classes([name.strip() for name in names if name.strip()]))


def checked_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """The class names as a tuple, or an Error: none, empty, twice, or not a list of texts at all."""
    if isinstance(classes, str):
        raise Error(f"The classes are a list of names, not the one text {classes!r}.")
    try:
        names = tuple(classes)
    except TypeError:
        raise Error(f'The classes are a list of names such as ["cat", "dog"], not {classes!r}.') from None
    if not names:
        raise Error('There must be at least one class: give names as "cat,dog,ship" or as a file with one a line.')
    seen: dict[str, str] = {}
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise Error(f"Class {position} is {name!r}; a class name is a text that is not empty.")
        if not is_unicode(name):
            raise Error(f"Class {position} is {name!r}, which is not valid Unicode text: write the name anew.")
        key = _as_read(name)
        if key in seen:
            raise Error(f"The class names {seen[key]!r} and {name!r} are the same; each class needs a name of its own.")
        seen[key] = name
    return names


def _as_read(name: str) -> str:
    """Equal for names that read the same: they would give the same prompt, or one that no classifier can tell from it."""
    folded = unicodedata.normalize("NFC", spoken(name)).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def spoken(name: str) -> str:
    """A class name as it is said in a prompt: data sets write "maple_tree"."""
    return name.replace("_", " ").strip()


def _names_in_file(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Error(f"The class names in '{path}' cannot be read: {problem}.") from problem
    if path.suffix.lower() == ".json" or text.startswith("["):
        return _names_in_json(text, f"The file '{path}'")
    return text.splitlines()


def _names_in_json(text: str, where: str) -> list[str]:
    try:
        names = parse_json(text)
    except ValueError as problem:
        raise Error(f"{where} is not valid JSON: {problem}.") from problem
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Error(f'{where} must be a JSON list of names, such as ["cat", "dog"].')
    return names
