"""What a table of a suite is made of, whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .places import Names

# What a table is about: our figures, means over streams, the paper's figures, domains, windows of the stream, what runs cost.
Kind = Literal["own", "means", "paper", "parts", "windows", "cost"]


@dataclass(frozen=True)
class Text:
    """One cell. `mark` is the number of a footnote, 0 for none; it belongs to the first word."""

    text: str
    bold: bool = False
    mark: int = 0


@dataclass(frozen=True)
class Block:
    """One table: groups of headed columns, and rows of as many texts as there are headings. `kind` is what it is about."""

    title: str
    stub: Names
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[tuple[Names, tuple[Text, ...]], ...]
    kind: Kind = "own"
