"""Lists of class names, with descriptions or without, from what a person types or keeps in a file."""

from __future__ import annotations

import csv
import json
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.types import Error
from ..io import is_unicode, parse_json
from .class_descriptions import BEHIND_NAME, Classes, line_of, prompts_of, read_line

COMMENT = "#"
# Between the cells of a table, by the suffix of its file.
SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Headings of a column of class names.
HEADINGS = ("class", "classes", "class_name", "name", "names", "label", "labels", "category", "species")
# Lists of class names that ship and are no data set's default (D34).
SHIPPED_LISTS = ("names:imagenet_r_newer",)


def parse_classes(text_or_file: str | os.PathLike[str]) -> list[str] | dict[str, list[str]]:
    """Class names from "cat,dog,ship", from a file with one name per line, or from a JSON list (typed or in a file).

    Lines of a file that begin with # are comments. A .csv or .tsv file has one column of names, or one whose heading is "class",
    "name" or "label".

    Where classes have descriptions, as in a file with lines such as "cat: a photo of a house cat; a kitten" or in a JSON object,
    they are a dictionary from names to descriptions. `ostta.load` takes either. "names:imagenet_r_newer" is a list that ships.

    >>> parse_classes("cat, dog, ship")
    ['cat', 'dog', 'ship']
    >>> parse_classes('{"cat": ["a photo of a house cat", "a kitten"], "dog": []}')
    {'cat': ['a photo of a house cat', 'a kitten'], 'dog': []}
    """
    text = os.fspath(text_or_file).strip()
    names: list[str] | dict[str, list[str]]
    if os.path.isdir(text):
        raise Error(
            f"'{text}' is a folder: give class names as a,b,c or a file with one name per line, or write "
            f"'{json.dumps([text])}' if this is the name of the only class."
        )
    if text in SHIPPED_LISTS:
        from .class_lists import class_list

        return list(class_list(text.removeprefix("names:")).names)
    if os.path.isfile(text):
        names = _names_in_file(Path(text))
    elif not isinstance(text_or_file, str) or text.lower().endswith((".txt", ".json")):
        raise Error(f"There is no file of class names '{text}'.", code="file-not-found")
    elif text.startswith("[") or (text.startswith("{") and text.endswith("}")):
        names = _names_in_json(text, "The list of class names")
    else:
        names = text.split(",")
    if isinstance(names, dict):
        described(names)
        return names
    return list(checked_classes([name.strip() for name in names if name.strip()]))


def described(classes: Classes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of `classes`, and the lines of the option `descriptions` for those that have any; an Error where they cannot be used.

    >>> described({"cat": ["a photo of a house cat", "a kitten"], "dog": []})
    (('cat', 'dog'), ('cat: a photo of a house cat; a kitten',))
    """
    names = checked_classes(tuple(classes) if isinstance(classes, Mapping) else classes)
    if not isinstance(classes, Mapping):
        return names, ()
    lines = tuple(line_of(name, given) for name, given in classes.items() if given not in ([], ()))
    prompts_of(lines, names)
    return names, lines


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


def _names_in_file(path: Path) -> list[str] | dict[str, list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise Error(f"The class names in '{path}' cannot be read: {problem}.") from problem
    if path.suffix.lower() == ".json" or text.startswith("["):
        return _names_in_json(text, f"The file '{path}'")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(COMMENT)]
    if path.suffix.lower() in SEPARATORS:
        return _names_in_table(lines, path)
    if not any(BEHIND_NAME in f"{line} " for line in lines):
        return lines
    read = []
    for line in lines:
        name, texts = read_line(line)
        if not texts and ":" in name:
            raise Error(
                f"The line {line.strip()!r} of '{path}' has a colon without a space behind it: write 'name: description'."
            )
        read.append((name, texts))
    return _once(read)


def _names_in_table(lines: list[str], path: Path) -> list[str]:
    """The column of names in a table, whose first line may be a heading."""
    rows = list(csv.reader(lines, delimiter=SEPARATORS[path.suffix.lower()], skipinitialspace=True))
    headings = [cell.strip().casefold().replace(" ", "_") for cell in rows[0]] if rows else []
    columns = [column for column, heading in enumerate(headings) if heading in HEADINGS]
    if len(rows) == 1:
        return rows[0]
    if max(map(len, rows), default=1) == 1:
        return [row[0] for row in rows[len(columns) :]]
    if len(columns) != 1:
        raise Error(
            f"The table '{path}' has several columns, and {len(columns) or 'none'} of them is headed class, name or label: "
            "give a file with one name per line."
        )
    return [row[columns[0]] for row in rows[1:] if len(row) > columns[0]]


def _names_in_json(text: str, where: str) -> list[str] | dict[str, list[str]]:
    try:
        names = parse_json(text, _once)
    except ValueError as problem:
        raise Error(f"{where} is not valid JSON: {problem}.") from problem
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    if isinstance(names, dict) and all(_is_texts(texts) for texts in names.values()):
        return {name: [texts] if isinstance(texts, str) else texts for name, texts in names.items()}
    raise Error(
        f'{where} must be a JSON list of names, such as ["cat", "dog"], or an object from names to lists of descriptions.'
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(text, str) for text in value))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary of `pairs`; a name that is there twice would be lost without a word."""
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise Error(f"The class {name!r} is there twice: each class needs a name of its own.")
        names.add(name)
    return dict(pairs)
