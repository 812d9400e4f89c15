"""Texts in the cells of a CSV file that a spreadsheet must not run as formulas."""

from __future__ import annotations

import re

# An apostrophe that `guarded` added, and the text behind it.
GUARD = r"^'('*[=+\-@\t\r\n])"
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def guarded(text: str) -> str:
    """Put an apostrophe, which spreadsheets do not show, before a text that they would take for a formula.

    >>> guarded("=1+1"), guarded("-1.5"), guarded("cat")
    ("'=1+1", '-1.5', 'cat')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(text: str) -> str:
    """The text that `guarded` was given.

    >>> unguarded("'=1+1"), unguarded(guarded("'=1+1")), unguarded("'tis")
    ('=1+1', "'=1+1", "'tis")
    """
    return re.sub(GUARD, r"\1", text)
