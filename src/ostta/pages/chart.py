"""Charts as SVG. They follow the colours of the page, also in the dark, and its width: letters and lines keep their size.

A chart is two drawings: the numbers of the upright axis, of fixed width, and the plot, whose width is the rest. In the plot, places
are shares of the width; curves are drawn on a ground of 1,000 units that is stretched, with lines that are not.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

UNITS = 1000
TOP, BOTTOM, AXIS = 8, 34, 46


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`. `marks` are places with their texts; without them round numbers are found. `log` for a logarithmic one."""

    low: float
    high: float
    name: str = ""
    marks: Sequence[tuple[float, str]] = ()
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, 0 to 1; what is outside lies at the edge.

        >>> Axis(0, 10).share(2.5), Axis(1, 100, log=True).share(10)
        (0.25, 0.5)
        """
        if self.log:
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, place))

    def shown(self) -> list[tuple[float, str]]:
        """The marks of the axis.

        >>> [text for _, text in Axis(0, 1).shown()]
        ['0.0', '0.2', '0.4', '0.6', '0.8', '1.0']
        """
        if self.marks:
            return [(value, text) for value, text in self.marks if self.low <= value <= self.high]
        if not 0 < self.high - self.low < math.inf:
            return []  # figures from a damaged file; the chart is drawn without numbers
        size = 10 ** math.floor(math.log10(self.high - self.low))
        step = next(size * part for part in (0.1, 0.2, 0.5, 1, 2, 5) if (self.high - self.low) / (size * part) <= 6)
        numbers = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(step * number, f"{step * number:,.{digits}f}") for number in numbers]


Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """Something drawn on a chart, in the units of its axes: lines, dots, filled areas or a label. `style` names classes of the style."""

    kind: Literal["line", "dots", "area", "label"]
    strokes: Sequence[Points]
    style: str
    text: str = ""


@dataclass
class Chart:
    """Lines, dots and bars on two axes. `svg` is for a page; `pictures.save` writes SVG, PDF and PNG files of the same charts.

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
        """Return the chart for a page. `about` describes it for readers who do not see it."""
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
            f'<svg class="plot" width="100%" height="{height}" aria-hidden="true">{"".join(levels)}{"".join(marks)}{name}'
            f'<svg y="{TOP}" width="100%" height="{self.height}" viewBox="0 0 {UNITS} {self.height}" preserveAspectRatio="none" '
            f'overflow="visible">{"".join(map(self._element, self.marks))}</svg></svg></div>'
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
        return f'<text x="{100 * share:.1f}%" y="{TOP + self.height + 14}" text-anchor="{anchor}">{html.escape(text)}</text>'

    def _y(self, value: float) -> float:
        return (1 - self.y.share(value)) * self.height

    def _place(self, x: float, y: float) -> str:
        return f"{UNITS * self.x.share(x):.0f} {self._y(y):.0f}"
