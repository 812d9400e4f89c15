"""Parts of HTML pages, charts among them, and `html_page`, which renders a page as one file.

All texts are plain: text between backquotes is a command, and everything is escaped. A page loads nothing from
elsewhere and says so to the browser (Content-Security-Policy). Its script copies commands and filters by method;
without the script the page is complete.

A chart is SVG that follows the colours and the width of the page. It consists of two drawings: the numbers of the
vertical axis, of fixed width, and the plot, which takes the remaining width. Positions in the plot are percentages of
its width; curves are drawn on 1,000 units that are stretched, with lines of constant width. `pictures.py` writes the
same charts as SVG, PDF and PNG files.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jinja2 import Environment

    from ..bench.tables import TableCell

TEMPLATES = Path(__file__).parent / "templates"


class Part:
    """Base of the parts of a page."""

    @property
    def kind(self) -> str:
        """The name of the part in the template."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Text(Part):
    """A paragraph. `style`: plain, a note in small letters, or a warning in a box."""

    text: str
    style: Literal["plain", "note", "warning"] = "plain"


@dataclass(frozen=True)
class Bullets(Part):
    """A list of sentences."""

    items: Sequence[str]
    numbered: bool = False


@dataclass(frozen=True)
class Figures(Part):
    """A few figures in large letters, with their names."""

    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Row:
    """A row of a table. `method`: key of the page's filter. `above`: heading above this row and the following rows."""

    name: str
    cells: Sequence[TableCell]
    method: str = ""
    above: str = ""


@dataclass(frozen=True)
class Table(Part):
    """Rows of cells under headings. On a narrow page, each row becomes a card."""

    headings: Sequence[str]
    rows: Sequence[Row]
    title: str = ""


@dataclass(frozen=True)
class Bars(Part):
    """Counts as bars: name, count, share in percent, and whether the row is for unknown images."""

    title: str
    rows: Sequence[tuple[str, int, float, bool]]

    @property
    def most(self) -> int:
        return max([1, *(count for _, count, _, _ in self.rows)])


@dataclass(frozen=True)
class Interval:
    """A row of `Intervals`: a value with its interval. `significant`: whether it is marked."""

    name: str
    text: str
    value: float
    low: float | None = None
    high: float | None = None
    significant: bool = False
    method: str = ""


@dataclass(frozen=True)
class Intervals(Part):
    """Values with their intervals on one axis."""

    title: str
    about: str
    rows: Sequence[Interval]
    axis: Axis
    # Whether labels of the axis have a sign.
    signed: bool = False

    @property
    def ticks(self) -> list[tuple[float, str]]:
        return [(value, f"+{text}" if self.signed and value > 0 else text) for value, text in self.axis.shown()]

    def place(self, value: float) -> float:
        """Return the position of a value in percent of the width."""
        return round(100 * self.axis.share(value), 2)


@dataclass(frozen=True)
class Picture(Part):
    """A chart from `Chart.svg`, with its title and an explanation. `wide`: whether it takes the width of the page."""

    svg: str
    title: str
    meaning: str = ""
    method: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Thumbnail:
    """A small image with its answers. `right` colours its border; None for no colour."""

    picture: bytes
    alt: str
    lines: Sequence[str] = ()
    right: bool | None = None
    media: Literal["image/jpeg", "image/png"] = "image/jpeg"

    @property
    def address(self) -> str:
        return f"data:{self.media};base64,{base64.b64encode(self.picture).decode()}"


@dataclass(frozen=True)
class Strip(Part):
    """Images beside each other."""

    title: str
    thumbnails: Sequence[Thumbnail]


@dataclass(frozen=True)
class Events(Part):
    """Events, the newest first: kind and place, a sentence, and its numbers."""

    events: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Command(Part):
    """A command that the reader can copy."""

    text: str
    about: str = ""


@dataclass(frozen=True)
class Folded(Part):
    """Parts that the reader can unfold."""

    summary: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Grid(Part):
    """Parts side by side; `small` parts need less width."""

    parts: Sequence[Part]
    small: bool = False


@dataclass(frozen=True)
class Legend(Part):
    """The legend of charts: pairs of CSS class and text."""

    words: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """Parts under a heading, then subsections. An empty section is not shown."""

    title: str
    parts: Sequence[Part] = ()
    sections: Sequence[Section] = ()

    def __bool__(self) -> bool:
        return bool(self.parts) or any(self.sections)


@dataclass(frozen=True)
class Page:
    """A whole page.

    kind: line above the title. lead: paragraphs below the title, the first in larger letters. warnings: boxes below the
    lead. methods: names for the filter.
    """

    title: str
    kind: str
    lead: Sequence[str]
    sections: Sequence[Section] = ()
    methods: Sequence[str] = field(default=())
    warnings: Sequence[str] = ()


def html_page(page: Page) -> str:
    """Return a page as one HTML file.

    >>> text = html_page(Page("cats & dogs", "a trial", ["Nothing yet; try `ostta demo`."]))
    >>> "<h1>cats &amp; dogs</h1>" in text, "<code>ostta demo</code>" in text
    (True, True)
    """
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=[section for section in page.sections if section],
            style=(TEMPLATES / "style.css").read_text(encoding="utf-8"),
            script=script,
            # No other script runs and nothing is fetched, whatever names of classes or files contain.
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        )
    )


def sentence(text: str) -> str:
    """Return a text as HTML; text between backquotes is a command.

    >>> sentence("try `ostta demo`")
    'try <code>ostta demo</code>'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sentence"] = sentence
    return environment


# --- charts -----------------------------------------------------------------------------------------------------------
# Units of the width of a plot; pixels above and below a plot, and of the numbers of its vertical axis.
UNITS = 1000
TOP, BOTTOM, AXIS = 8, 34, 46


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`.

    marks: values with their labels; by default round numbers. log: whether the axis is logarithmic.
    """

    low: float
    high: float
    name: str = ""
    marks: Sequence[tuple[float, str]] = ()
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 to 1. Values outside the axis are at its ends.

        >>> Axis(0, 10).share(2.5), Axis(1, 100, log=True).share(10)
        (0.25, 0.5)
        """
        if self.log:
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, place))

    def shown(self) -> list[tuple[float, str]]:
        """Return the marks of the axis.

        >>> [text for _, text in Axis(0, 1).shown()]
        ['0.0', '0.2', '0.4', '0.6', '0.8', '1.0']
        """
        if self.marks:
            return [(value, text) for value, text in self.marks if self.low <= value <= self.high]
        if not 0 < self.high - self.low < math.inf:
            return []  # figures of a damaged file
        size = 10 ** math.floor(math.log10(self.high - self.low))
        step = next(size * part for part in (0.1, 0.2, 0.5, 1, 2, 5) if (self.high - self.low) / (size * part) <= 6)
        numbers = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(step * number, f"{step * number:,.{digits}f}") for number in numbers]


def image_axis(count: int) -> Axis:
    """Return the horizontal axis of a stream of `count` images.

    >>> image_axis(1_000).marks
    [(0, '0'), (500, '500'), (1000, '1,000')]
    """
    marks = [(number, f"{number:,}") for number in sorted({0, count // 2, count})]
    return Axis(0, max(1, count), "images seen", marks)


def axis_around(values: Iterable[float | None], name: str = "") -> Axis:
    """Return an axis with a margin around the values that are not None.

    >>> axis_around([0, None, 10])
    Axis(low=-0.5, high=10.5, name='', marks=(), log=False)
    """
    known = [value for value in values if value is not None]
    margin = 0.05 * (max(known) - min(known)) or 0.5
    return Axis(min(known) - margin, max(known) + margin, name)


Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """Lines, dots, filled areas or a label on a chart, in the units of its axes. `style` names CSS classes."""

    kind: Literal["line", "dots", "area", "label"]
    strokes: Sequence[Points]
    style: str
    text: str = ""


@dataclass
class Chart:
    """Lines, dots and bars on two axes. `svg` returns it for a page; `pictures.py` writes SVG, PDF and PNG files.

    >>> chart = Chart(Axis(0, 10, "images seen"), Axis(0, 100))
    >>> chart.line([(0, 50), (10, 70)], "known")
    >>> chart.svg("Accuracy so far, from 50 to 70").count("<path")
    1
    """

    x: Axis
    y: Axis
    height: int = 200
    title: str = ""
    marks: list[Mark] = field(default_factory=list)

    def line(self, points: Iterable[tuple[float, float]], style: str, *, dots: bool = False) -> None:
        """Draw a curve, with a gap where a value is not a number. `dots` marks the points as well."""
        strokes: list[Points] = [[]]
        found = list(points)
        for x, y in found:
            if math.isfinite(y):
                strokes[-1].append((x, y))
            elif strokes[-1]:
                strokes.append([])
        self._add("line", [stroke for stroke in strokes if stroke], style)
        if dots:
            self.dots([point for point in found if math.isfinite(point[1])], f"{style} large")

    def dots(self, points: Iterable[tuple[float, float]], style: str) -> None:
        """Draw one dot for each point."""
        self._add("dots", [[point] for point in points], style)

    def bars(self, edges: Sequence[float], heights: Sequence[float], style: str) -> None:
        """Draw a histogram. There is one more edge than heights."""
        outline = [(edges[0], self.y.low)]
        for low, high, height in zip(edges, edges[1:], heights, strict=False):
            outline += [(low, height), (high, height)]
        self._add("area", [[*outline, (edges[-1], self.y.low)]], style)

    def spans(self, points: Iterable[tuple[float, float, float]], style: str) -> None:
        """Draw vertical lines, from low to high at each place."""
        self._add("line", [[(x, low), (x, high)] for x, low, high in points], style)

    def upright(self, x: float, style: str) -> None:
        """Draw a line from the bottom to the top."""
        self.spans([(x, self.y.low, self.y.high)], style)

    def label(self, x: float, y: float, text: str, anchor: Literal["start", "middle", "end"] = "start") -> None:
        """Write a text at a point."""
        self.marks.append(Mark("label", [[(x, y)]], anchor, text))

    def _add(self, kind: Literal["line", "dots", "area"], strokes: Sequence[Points], style: str) -> None:
        if strokes:
            self.marks.append(Mark(kind, strokes, style))

    def svg(self, about: str) -> str:
        """Return the chart for a page. `about` is the description for screen readers."""
        height = self.height + TOP + BOTTOM
        levels, numbers = [], []
        for value, text in self.y.shown():
            y = TOP + self._y(value)
            levels.append(f'<line class="level" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
            numbers.append(f'<text x="{AXIS - 6}" y="{y:.1f}" dy=".35em" text-anchor="end">{html.escape(text)}</text>')
        marks = [self._mark(value, text) for value, text in self.x.shown()]
        name = f'<text class="name" x="50%" y="{height - 4}" text-anchor="middle">{html.escape(self.x.name)}</text>'
        return (
            f'<div class="chart" role="img" aria-label="{html.escape(about)}">'
            f'<svg class="numbers" width="{AXIS}" height="{height}" aria-hidden="true">{"".join(numbers)}</svg>'
            f'<svg class="plot" width="100%" height="{height}" aria-hidden="true">'
            f"{''.join(levels)}{''.join(marks)}{name}"
            f'<svg y="{TOP}" width="100%" height="{self.height}" viewBox="0 0 {UNITS} {self.height}" '
            f'preserveAspectRatio="none" overflow="visible">{"".join(map(self._element, self.marks))}</svg></svg></div>'
        )

    def _element(self, mark: Mark) -> str:
        if mark.kind == "label":
            (x, y), anchor = mark.strokes[0][0], mark.style
            place = f'x="{UNITS * self.x.share(x):.0f}" y="{self._y(y):.0f}" text-anchor="{anchor}"'
            return f"<text {place}>{html.escape(mark.text)}</text>"
        ends = {"line": "", "area": "Z", "dots": "h0"}  # A dot is a line of no length with round ends.
        path = "".join(f"M{'L'.join(self._place(x, y) for x, y in stroke)}{ends[mark.kind]}" for stroke in mark.strokes)
        return f'<path class="{mark.kind} {mark.style}" d="{path}"/>'

    def _mark(self, value: float, text: str) -> str:
        share = self.x.share(value)
        anchor = "start" if share < 0.04 else "end" if share > 0.96 else "middle"
        place = f'x="{100 * share:.1f}%" y="{TOP + self.height + 14}" text-anchor="{anchor}"'
        return f"<text {place}>{html.escape(text)}</text>"

    def _y(self, value: float) -> float:
        return (1 - self.y.share(value)) * self.height

    def _place(self, x: float, y: float) -> str:
        return f"{UNITS * self.x.share(x):.0f} {self._y(y):.0f}"
