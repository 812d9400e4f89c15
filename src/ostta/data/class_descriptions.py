"""Descriptions of classes: whole prompts, in the place of the class's name in templates.

    cat: a photo of a house cat; a kitten
    dog

One line a class, in files and in the option `descriptions` alike: the name, a colon and a space, and the descriptions with semicolons
between them. A class without any is prompted by its name, in the templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core.checks import shown
from ..core.types import Error
from ..io import is_unicode

# The names of classes, or names with descriptions, of which a class may have none.
Classes = Sequence[str] | Mapping[str, str | Sequence[str]]
BEHIND_NAME, BETWEEN = ": ", ";"
# What a state file takes of one option, and in one text.
MOST_LINES, MOST_CHARACTERS = 1_000, 10_000


def line_of(name: str, descriptions: str | Sequence[str]) -> str:
    """The line of one class; an Error where its descriptions cannot be written so that they can be read again.

    >>> line_of("cat", ["a photo of a house cat", "a kitten"])
    'cat: a photo of a house cat; a kitten'
    """
    given = [descriptions] if isinstance(descriptions, str) else descriptions
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise Error(f"The descriptions of the class {name!r} are a list of texts, not {shown(descriptions)}.")
    if BEHIND_NAME in name or name != name.strip():
        raise Error(
            f"The class {name!r} cannot have descriptions with such a name: take the colon, or the space, out of it."
        )
    texts = [_checked(name, text) for text in given]
    line = f"{name}{BEHIND_NAME}{f'{BETWEEN} '.join(texts)}"
    if len(line) > MOST_CHARACTERS:
        raise Error(
            f"The descriptions of the class {name!r} have {len(line):,} characters; {MOST_CHARACTERS:,} are the most."
        )
    return line


def read_line(line: str) -> tuple[str, list[str]]:
    """The name of a class and its descriptions, none where there is no colon with a space behind it.

    >>> read_line("cat: a photo of a house cat; a kitten"), read_line("dog")
    (('cat', ['a photo of a house cat', 'a kitten']), ('dog', []))
    """
    # A colon at the end has lost its space to whoever took spaces away, and has nothing behind it.
    name, colon, behind = f"{line.strip()} ".partition(BEHIND_NAME)
    texts = [text.strip() for text in behind.split(BETWEEN) if text.strip()]
    if colon and not texts:
        raise Error(f"The class {name!r} has a colon and no description behind it: write one, or leave the colon away.")
    return name.strip(), texts


def prompts_of(lines: Sequence[str], classes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The descriptions in the lines of the option, by class; an Error where one does not belong to these classes."""
    if len(lines) > MOST_LINES:
        raise Error(f"{len(lines):,} classes have descriptions, and {MOST_LINES:,} is the most.")
    found: dict[str, tuple[str, ...]] = {}
    alike: dict[frozenset[str], str] = {}
    for line in lines:
        name, texts = read_line(line)
        if name not in classes:
            raise Error(f"There are descriptions of {shown(name)}, which is not one of the classes: {_some(classes)}.")
        if not texts:
            raise Error(f"The descriptions of the class {name!r} are not there: write them as 'name: one; another'.")
        if name in found:
            raise Error(f"The class {name!r} has descriptions twice: write them in one line.")
        line_of(name, texts)
        found[name] = tuple(texts)
        folded = [" ".join(text.casefold().split()) for text in texts]
        if len(set(folded)) < len(folded):
            raise Error(f"The class {name!r} has the same description twice: once is enough.")
        other = alike.setdefault(frozenset(folded), name)
        if other != name:
            raise Error(
                f"The classes {other!r} and {name!r} have the same descriptions: nothing could tell them apart."
            )
    return found


def _checked(name: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise Error(f"A description of the class {name!r} is {shown(text)}; it must be a text that is not empty.")
    if not is_unicode(text):
        raise Error(f"A description of the class {name!r} is not valid Unicode text: write it anew.")
    if BETWEEN in text or len(text.splitlines()) > 1:
        raise Error(
            f"The description {shown(text)} has a semicolon or a line break in it: make it two, or leave that away."
        )
    return text.strip()


def _some(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (", ..." if len(listed) > most else "")
