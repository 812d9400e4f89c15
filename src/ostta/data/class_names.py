"""Class names: parse and check user input, with or without descriptions, and read the included lists.

A description is a complete prompt that is used instead of the class name in the prompt templates:

    cat: a photo of a house cat; a kitten
    dog

Files and the option `descriptions` have one line per class: the name, a colon and a space, and the descriptions,
separated by semicolons. A class without descriptions is prompted by its name.
"""

from __future__ import annotations

import csv
import json
import os
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..core.checks import shown
from ..core.errors import translate_errors
from ..core.text import shortened
from ..core.types import Error
from ..io import is_unicode, parse_json, read_regular

# Class names, or descriptions by class name. A class may have no descriptions.
Classes = Sequence[str] | Mapping[str, str | Sequence[str]]
COMMENT = "#"
AFTER_NAME, SEPARATOR = ": ", ";"
# Limits of the state file format: values per option, characters per value.
MOST_LINES, MOST_CHARACTERS = 1_000, 10_000
# Cell separators of tables, by file suffix.
TABLES = {".csv": ",", ".tsv": "\t"}
# Accepted headings of the class name column.
HEADINGS = ("class", "classes", "class_name", "name", "names", "label", "labels", "category", "species")
# Included lists that are not the default of a data set.
SHIPPED_LISTS = ("names:imagenet_r_newer",)
_LISTS = Path(__file__).parent / "class_lists.json"


# --- names from the user ----------------------------------------------------------------------------------------------
def parse_classes(text_or_file: str | os.PathLike[str]) -> list[str] | dict[str, list[str]]:
    """Parse class names from "cat,dog,ship", from a file with one name per line, or from a JSON list.

    Lines of a file that begin with # are comments. A .csv or .tsv file must have a single column, or a column with the
    heading "class", "name" or "label". "names:imagenet_r_newer" is an included list.

    If classes have descriptions, as in a file with lines such as "cat: a photo of a house cat; a kitten" or in a JSON
    object, the result is a dictionary from names to descriptions. `ostta.load` accepts both forms.

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
            f"'{json.dumps([text])}' if this is the name of the only class.",
            code="file-not-regular",
        )
    if text in SHIPPED_LISTS:
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


def checked_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the class names as a tuple. Raise an Error if a name is invalid or repeated."""
    try:
        names = () if isinstance(classes, str) else tuple(classes)
    except TypeError:
        names = ()
    if not names:
        raise _invalid(
            f'The classes must be a list of at least one name, such as ["cat", "dog"], not {shown(classes)}.'
        )
    seen: dict[str, str] = {}
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not is_unicode(name):
            raise _invalid(f"Class {position} is {name!r}: a class name must be valid Unicode text that is not empty.")
        key = _comparable(name)
        if key in seen:
            raise _invalid(f"The class names {seen[key]!r} and {name!r} are the same: each class needs its own name.")
        seen[key] = name
    return names


def spoken(name: str) -> str:
    """Return the form of a class name that is used in prompts, such as "maple tree" for "maple_tree"."""
    return name.replace("_", " ").strip()


# --- descriptions -----------------------------------------------------------------------------------------------------
def described(classes: Classes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the class names, and the lines of the option `descriptions` for the classes with descriptions.

    >>> described({"cat": ["a photo of a house cat", "a kitten"], "dog": []})
    (('cat', 'dog'), ('cat: a photo of a house cat; a kitten',))
    """
    names = checked_classes(tuple(classes) if isinstance(classes, Mapping) else classes)
    if not isinstance(classes, Mapping):
        return names, ()
    lines = tuple(line_of(name, texts) for name, texts in classes.items() if texts not in ([], ()))
    prompts_of(lines, names)
    return names, lines


def line_of(name: str, descriptions: str | Sequence[str]) -> str:
    """Return the line of one class. Raise an Error if the line could not be parsed back.

    >>> line_of("cat", ["a photo of a house cat", "a kitten"])
    'cat: a photo of a house cat; a kitten'
    """
    texts = [descriptions] if isinstance(descriptions, str) else descriptions
    if not isinstance(texts, Sequence) or isinstance(texts, bytes):
        raise _invalid(f"The descriptions of the class {name!r} must be a list of texts, not {shown(descriptions)}.")
    if AFTER_NAME in name or name != name.strip():
        raise _invalid(f"The class {name!r} cannot have descriptions: remove the colon or the space from its name.")
    for text in texts:
        if not isinstance(text, str) or not text.strip() or not is_unicode(text):
            problem = "it must be valid Unicode text that is not empty"
        elif SEPARATOR in text or len(text.splitlines()) > 1:
            problem = "it must not contain a semicolon or a line break"
        else:
            continue
        raise _invalid(f"A description of the class {name!r} is {shown(text)}: {problem}.")
    line = f"{name}{AFTER_NAME}{f'{SEPARATOR} '.join(text.strip() for text in texts)}"
    if len(line) > MOST_CHARACTERS:
        raise _invalid(
            f"The descriptions of the class {name!r} have {len(line):,} characters, and at most {MOST_CHARACTERS:,} "
            "are allowed: shorten them."
        )
    return line


def read_line(line: str) -> tuple[str, list[str]]:
    """Split a line into a class name and its descriptions.

    >>> read_line("cat: a photo of a house cat; a kitten"), read_line("dog")
    (('cat', ['a photo of a house cat', 'a kitten']), ('dog', []))
    """
    # A trailing colon is accepted even if the space after it was stripped.
    name, colon, rest = f"{line.strip()} ".partition(AFTER_NAME)
    texts = [text.strip() for text in rest.split(SEPARATOR) if text.strip()]
    if colon and not texts:
        raise _invalid(f"The class {name!r} has a colon but no description: add a description, or remove the colon.")
    return name.strip(), texts


def prompts_of(lines: Sequence[str], classes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse the lines of the option into descriptions by class name."""
    if len(lines) > MOST_LINES:
        raise _invalid(f"{len(lines):,} classes have descriptions, and at most {MOST_LINES:,} may have them.")
    prompts: dict[str, tuple[str, ...]] = {}
    owners: dict[frozenset[str], str] = {}
    for line in lines:
        name, texts = read_line(line)
        if name not in classes:
            names = shortened(classes, most=5)
            raise _invalid(f"There are descriptions of {shown(name)}, which is not one of the classes: {names}.")
        if not texts or name in prompts:
            problem = "two lines of descriptions: write one" if texts else "no descriptions: write 'name: one; another'"
            raise _invalid(f"The class {name!r} has {problem}.")
        line_of(name, texts)
        prompts[name] = tuple(texts)
        folded = [" ".join(text.casefold().split()) for text in texts]
        if len(set(folded)) < len(folded):
            raise _invalid(f"The class {name!r} has the same description twice: remove one.")
        other = owners.setdefault(frozenset(folded), name)
        if other != name:
            raise _invalid(
                f"The classes {other!r} and {name!r} have the same descriptions: no model can separate them."
            )
    return prompts


# --- included lists ---------------------------------------------------------------------------------------------------
class ClassList(NamedTuple):
    """Class names for prompts and folder names of the classes, both in label order."""

    names: tuple[str, ...]
    folders: tuple[str, ...]


@lru_cache(maxsize=16)
def class_list(name: str) -> ClassList:
    """Return a list from class_lists.json. "imagenet_r_newer" has the current ImageNet names for ImageNet-R.

    >>> class_list("visda").names[:3]
    ('aeroplane', 'bicycle', 'bus')
    """
    entries = _lists()[name.removesuffix("_newer")]
    if name == "imagenet":
        return ClassList(tuple(entry[1] for entry in entries), tuple(entry[0] for entry in entries))
    by_wnid = imagenet_names() | _lists().get(f"{name}_published", {})
    return ClassList(tuple(by_wnid.get(entry, spoken(entry)) for entry in entries), tuple(entries))


@lru_cache(maxsize=1)
def imagenet_names() -> dict[str, str]:
    """Return the names of the 1,000 ImageNet classes by WordNet id."""
    return dict(_lists()["imagenet"])


@lru_cache(maxsize=1)
def _lists() -> Any:
    return json.loads(_LISTS.read_text(encoding="utf-8"))


# --- helpers ----------------------------------------------------------------------------------------------------------
def _invalid(message: str) -> Error:
    return Error(message, code="classes-invalid")


def _comparable(name: str) -> str:
    """Return a normal form that is equal for names that a text encoder cannot distinguish."""
    folded = unicodedata.normalize("NFC", spoken(name)).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def _names_in_file(path: Path) -> list[str] | dict[str, list[str]]:
    content = read_regular(path, "file of class names")
    with translate_errors("file-not-text", f"The file of class names '{path}' is not UTF-8 text.", ValueError):
        text = content.decode("utf-8-sig").strip()
    suffix = path.suffix.lower()
    if suffix == ".json" or text.startswith("["):
        return _names_in_json(text, f"The file '{path}'")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(COMMENT)]
    if suffix in TABLES:
        return _names_in_table(lines, TABLES[suffix], path)
    if not any(AFTER_NAME in f"{line} " for line in lines):
        return lines
    pairs = [read_line(line) for line in lines]
    for name, texts in pairs:
        if not texts and ":" in name:
            raise _invalid(f"The line {name!r} of '{path}' has a colon without a space: write 'name: description'.")
    return _unique(pairs)


def _names_in_table(lines: list[str], separator: str, path: Path) -> list[str]:
    """Return the class name column of a table. The first row may be a heading."""
    rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    if len(rows) == 1:
        return rows[0]
    headings = [cell.strip().casefold().replace(" ", "_") for cell in rows[0]] if rows else []
    columns = [column for column, heading in enumerate(headings) if heading in HEADINGS]
    if max(map(len, rows), default=1) == 1:
        return [row[0] for row in rows[len(columns) :]]
    if len(columns) != 1:
        raise _invalid(
            f"The table '{path}' has several columns, and {len(columns) or 'none'} of them has the heading class, name "
            "or label: give a file with one name per line."
        )
    return [row[columns[0]] for row in rows[1:] if len(row) > columns[0]]


def _names_in_json(text: str, where: str) -> list[str] | dict[str, list[str]]:
    with translate_errors("classes-invalid", f"{where} is not valid JSON: {{reason}}.", ValueError):
        names = parse_json(text, _unique)
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    if isinstance(names, dict) and all(_is_texts(texts) for texts in names.values()):
        return {name: [texts] if isinstance(texts, str) else texts for name, texts in names.items()}
    raise _invalid(
        f'{where} must be a JSON list of names, such as ["cat", "dog"], or an object from names to lists of '
        "descriptions."
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(text, str) for text in value))


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return `pairs` as a dictionary. Raise an Error for repeated names, whose values would be lost."""
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _invalid(f"The class {twice!r} is listed twice: each class needs its own name.")
    return by_name
