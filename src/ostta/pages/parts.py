"""What a page can be made of. All texts are plain: backquotes mark commands, and everything is escaped when the page is made."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Text:
    """A paragraph. `style`: plain, a note in smaller letters, or a warning in a box."""

    kind: ClassVar[str] = "text"
    text: str
    style: Literal["plain", "note", "warning"] = "plain"


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    kind: ClassVar[str] = "bullets"
    items: Sequence[str]
    numbered: bool = False


@dataclass(frozen=True)
class Figures:
    """A few figures in large letters, each with its name."""

    kind: ClassVar[str] = "figures"
    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Cell:
    """A figure; `small` stands below it, `mark` is the number of a footnote, 0 for none."""

    text: str
    small: str = ""
    strong: bool = False
    mark: int = 0


@dataclass(frozen=True)
class Row:
    """A line of a table. `method` is what the filter of the page goes by; `above` is a heading over the lines from here on."""

    name: str
    cells: Sequence[Cell]
    method: str = ""
    above: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings, the first of which is over the names. Where there is no room, each row becomes a small card."""

    kind: ClassVar[str] = "table"
    headings: Sequence[str]
    rows: Sequence[Row]
    title: str = ""


@dataclass(frozen=True)
class Bars:
    """Counts as bars: name, count, share in percent; `unknown` rows have the colour of what is unknown."""

    kind: ClassVar[str] = "bars"
    title: str
    rows: Sequence[tuple[str, int, float, bool]]

    @property
    def most(self) -> int:
        return max([1, *(count for _, count, _, _ in self.rows)])


@dataclass(frozen=True)
class Interval:
    """A line of `Intervals`: a value with its interval, in the units of the axis. `sure` where it is marked as a difference."""

    name: str
    text: str
    value: float
    low: float | None = None
    high: float | None = None
    sure: bool = False
    method: str = ""


@dataclass(frozen=True)
class Intervals:
    """Values with their intervals on one axis from `low` to `high`; several panels with the same axis can be compared by eye."""

    kind: ClassVar[str] = "intervals"
    title: str
    about: str
    rows: Sequence[Interval]
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def place(self, value: float) -> float:
        """In percent of the width."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 2)


@dataclass(frozen=True)
class Picture:
    """A chart, as `Chart.svg` makes it, with its title and what it means. `wide`: as wide as the page."""

    kind: ClassVar[str] = "picture"
    svg: str
    title: str
    meaning: str = ""
    method: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Shot:
    """A small image with what was said about it. `right` colours its edge; None for neither."""

    picture: bytes
    alt: str
    lines: Sequence[str] = ()
    right: bool | None = None
    media: Literal["image/jpeg", "image/png"] = "image/jpeg"

    @property
    def address(self) -> str:
        return f"data:{self.media};base64,{base64.b64encode(self.picture).decode()}"


@dataclass(frozen=True)
class Strip:
    """Images beside each other."""

    kind: ClassVar[str] = "strip"
    title: str
    shots: Sequence[Shot]
    about: str = ""


@dataclass(frozen=True)
class Events:
    """What happened, the newest first: what kind it was and where, a sentence, and its numbers."""

    kind: ClassVar[str] = "events"
    events: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Command:
    """What to type, to be copied."""

    kind: ClassVar[str] = "command"
    text: str
    about: str = ""


@dataclass(frozen=True)
class Folded:
    """Parts behind a line that opens them."""

    kind: ClassVar[str] = "folded"
    summary: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Grid:
    """Parts beside each other, as many as there is room for; `small` ones need less."""

    kind: ClassVar[str] = "grid"
    parts: Sequence[Part]
    small: bool = False


@dataclass(frozen=True)
class Key:
    """A few words and what their colours and lines mean in the charts below: (class of the style, words)."""

    kind: ClassVar[str] = "key"
    words: Sequence[tuple[str, str]]


Part = Text | Bullets | Figures | Table | Bars | Intervals | Picture | Strip | Events | Command | Folded | Grid | Key


@dataclass(frozen=True)
class Section:
    """Parts under a heading, then sections under smaller ones. Left out of the page where it has none."""

    title: str
    parts: Sequence[Part] = ()
    sections: Sequence[Section] = ()

    def __bool__(self) -> bool:
        return bool(self.parts) or any(self.sections)


@dataclass(frozen=True)
class Page:
    """A whole page.

    `kind` stands above the title, and `lead` below it: the first paragraph in larger letters. `warnings` are shown in boxes below the
    lead. `methods` are the names that the reader can filter by.
    """

    title: str
    kind: str
    lead: Sequence[str]
    sections: Sequence[Section] = ()
    methods: Sequence[str] = field(default=())
    warnings: Sequence[str] = ()
