"""Text helpers: counted nouns, short lists, and cells of CSV files."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The apostrophe that `guarded` adds, and the text after it.
GUARD = r"^'('*[=+\-@\t\r\n])"
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "step"), counted(2, "step"), counted(0, "class", "classes")
    ('1 step', '2 steps', '0 classes')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def shortened(names: Sequence[str], most: int) -> str:
    """Return the first names on one line, separated by commas.

    >>> shortened(["ant", "bee", "cat", "dog"], most=3)
    'ant, bee, cat, ...'
    """
    # A name may contain line breaks.
    first = [" ".join(name.split()) for name in names[:most]]
    return ", ".join(first if len(names) <= most else [*first, "..."])


def first_few(names: Sequence[str], one: str, many: str | None = None, most: int = 3) -> str:
    """Return the number of names and the first few names.

    >>> first_few(["ant", "bee", "cat", "dog"], "class", "classes")
    '4 classes (ant, bee, cat, ...)'
    """
    return counted(len(names), one, many) + (f" ({shortened(names, most)})" if names else "")


def guarded(text: str) -> str:
    """Prefix text that a spreadsheet would interpret as a formula with an apostrophe, which it does not display.

    >>> guarded("=1+1"), guarded("-1.5"), guarded("cat")
    ("'=1+1", '-1.5', 'cat')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(text: str) -> str:
    """Return the original text of a result of `guarded`.

    >>> unguarded("'=1+1"), unguarded(guarded("'=1+1")), unguarded("'tis")
    ('=1+1', "'=1+1", "'tis")
    """
    return re.sub(GUARD, r"\1", text)
