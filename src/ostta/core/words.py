"""Small pieces of sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun.

    >>> counted(1, "step"), counted(2, "step"), counted(0, "class", "classes")
    ('1 step', '2 steps', '0 classes')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def first_few(names: Sequence[str], one: str, many: str | None = None, most: int = 3) -> str:
    """How many there are, and the first few of them.

    >>> first_few(["ant", "bee", "cat", "dog"], "class", "classes")
    '4 classes (ant, bee, cat, ...)'
    """
    # A name may be anything, even several lines.
    first = ", ".join([*(" ".join(name.split()) for name in names[:most]), *(["..."] if len(names) > most else [])])
    return counted(len(names), one, many) + (f" ({first})" if first else "")
