"""Charts of a whole suite: the headline domain by domain, and against an option that the suite varies."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..bench.collected import Names
from ..bench.figures import Figure, SuiteFigures
from ..bench.metric_values import metric_name
from ..bench.result import Result
from . import Axis, Chart, Grid, Key, Part, Picture, Text

# Colours of the style of pages, one a line.
COLOURS = 8


# The least that the scale of percent spans.
NARROWEST = 2.0


# Of more domains than this, every fifth is numbered.
MOST_NAMED = 20


# An axis of a suite is a scale if at least so many of its entries are one word with different numbers in it.
FEWEST = 3


_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w./])")


class _Scale(NamedTuple):
    """Entries of one axis that differ in a number: its name, and the number of each entry."""

    axis: str
    label: str
    numbers: dict[str, float]


class _Curve(NamedTuple):
    """Figures by the number on the scale."""

    points: dict[float, Figure]
    frozen: bool


def domain_charts(figures: SuiteFigures) -> Iterator[Part]:
    """HM of each domain, where runs have domains: one chart for a column of the suite and a block of its rows."""
    before: tuple[object, ...] = ()
    for column in figures.columns:
        for block in dict.fromkeys(row[:-1] for row in figures.rows):
            lines: dict[str, tuple[list[float], bool]] = {}
            names: list[str] = []
            for row in (row for row in figures.rows if row[:-1] == block):
                found = list(figures.results(row, column).values())
                if found and found[0].domains:
                    names = names or [domain.name for domain in found[0].domains]
                    lines[row[-1]] = [_mean_hm(found, place) for place in range(len(names))], figures.is_frozen(row)
            if not lines:
                continue
            key, order = _domain_key(lines), ", ".join(f"{place} {name}" for place, name in enumerate(names, 1))
            if (key, order) != before:
                seeds = " Means over the seeds." if _several_seeds(figures) else ""
                yield Text(f"The domains in the order of the stream: {order}.{seeds}", "note")
                yield key
                before = key, order
            title = ", ".join(["HM of each domain", *block, *column])
            yield Picture(_draw_domains(names, lines, title), title, wide=True)


def option_charts(figures: SuiteFigures) -> Iterator[Part]:
    """The headline figure against every option that the suite varies in steps."""
    name = metric_name(figures.headline)
    bars = "Upright lines: standard deviation over the seeds." if _several_seeds(figures) else ""
    for scale in _scales(figures):
        panels = {
            panel: curves
            for panel, curves in _panels(figures, scale).items()
            if max(len(curve.points) for curve in curves.values()) > 1
        }
        if not panels:
            continue
        styles = _styles({line: curve.frozen for curves in panels.values() for line, curve in curves.items()})
        # One scale of percent, so that slopes can be compared, wherever a stream's figures lie.
        ranges = {panel: _range(list(curves.values())) for panel, curves in panels.items()}
        span = max(NARROWEST, *(high - low for low, high in ranges.values()))
        yield Key([(f"rule {_key_style(style)}", line) for line, style in styles.items()])
        pictures = []
        for panel, curves in panels.items():
            title = ", ".join([f"{name} against {scale.label}", *panel])
            axis = _percent(*ranges[panel], span)
            pictures.append(Picture(_draw_curves(scale, axis, curves, styles, title), title, bars))
        yield Grid(pictures)


def _panels(figures: SuiteFigures, scale: _Scale) -> dict[Names, dict[str, _Curve]]:
    """The curves by picture: one a column of the suite where the scale is among its rows, else a line for each row."""
    rows = figures.suite.rows
    place = (*rows, *figures.suite.columns).index(scale.axis)
    panels: dict[Names, dict[str, _Curve]] = {}
    for row in figures.rows:
        for column in figures.columns:
            entries = (*row, *column)
            figure = figures.figure(row, column, figures.headline)
            if entries[place] not in scale.numbers or figure is None or figure.mean is None:
                continue
            x, rest = scale.numbers[entries[place]], entries[:place] + entries[place + 1 :]
            varied = place < len(rows)
            panel = rest if varied else (*rest[len(rows) :], *row[:-1])
            curves = panels.setdefault(panel, {})
            against = row if figures.is_frozen(row) else figures.frozen_row(row, column)
            if not figures.is_frozen(row):
                line = next(iter(figures.results(row, column).values())).spec.method if varied else row[-1]
                curves.setdefault(line, _Curve({}, False)).points[x] = figure
            base = None if against is None else figures.figure(against, column, figures.headline)
            if base is not None and base.mean is not None:
                curves.setdefault("frozen", _Curve({}, True)).points[x] = base
    return panels


def _scales(figures: SuiteFigures) -> Iterator[_Scale]:
    for axis in figures.suite.axes:
        alike: dict[str, dict[str, float]] = {}
        for entry in axis.entries:
            numbers = _NUMBER.findall(entry.name)
            if len(numbers) == 1:
                alike.setdefault(_NUMBER.sub("…", entry.name), {})[entry.name] = float(numbers[0])
        for pattern, entries in alike.items():
            if len(entries) >= FEWEST:
                label = pattern[:-1].rstrip(" =") if pattern.endswith("…") else pattern.replace("…", "N")
                yield _Scale(axis.name, label or axis.name, entries)


def _styles(lines: Mapping[str, bool]) -> dict[str, str]:
    """The class of each line: the frozen one dotted, the others by colour."""
    coloured = [name for name, frozen in lines.items() if not frozen]
    return {name: "frozen" if frozen else f"c{coloured.index(name) % COLOURS}" for name, frozen in lines.items()}


def _key_style(style: str) -> str:
    return "dotted" if style == "frozen" else style


def _domain_key(lines: Mapping[str, tuple[list[float], bool]]) -> Key:
    styles = _styles({name: frozen for name, (_, frozen) in lines.items()})
    return Key([(f"rule {_key_style(style)}", name) for name, style in styles.items()])


def _draw_domains(names: list[str], lines: Mapping[str, tuple[list[float], bool]], about: str) -> str:
    styles = _styles({name: frozen for name, (_, frozen) in lines.items()})
    known = [value for values, _ in lines.values() for value in values if math.isfinite(value)]
    marks = [(place, str(place)) for place in range(1, len(names) + 1) if len(names) <= MOST_NAMED or place % 5 == 0]
    low, high = min(known, default=0.0), max(known, default=100.0)
    chart = Chart(Axis(0.5, len(names) + 0.5, "domain", marks), _percent(low, high), height=190)
    # The frozen line on top: methods that do not move would hide it.
    for name, (values, _) in sorted(lines.items(), key=lambda line: line[1][1]):
        chart.line(enumerate(values, 1), styles[name], dots=styles[name] != "frozen")
    return chart.svg(about)


def _draw_curves(
    scale: _Scale, limits: Axis, curves: Mapping[str, _Curve], styles: Mapping[str, str], about: str
) -> str:
    values = sorted({x for curve in curves.values() for x in curve.points})
    log = values[0] > 0 and values[-1] / values[0] >= 50
    room = 0.05 * (values[-1] - values[0]) or 1.0
    low, high = (values[0] / 1.2, values[-1] * 1.2) if log else (values[0] - room, values[-1] + room)
    chart = Chart(Axis(low, high, scale.label, [(value, f"{value:g}") for value in values], log), limits, height=190)
    for line, curve in sorted(curves.items(), key=lambda each: each[1].frozen):
        points = [(x, curve.points[x]) for x in sorted(curve.points)]
        chart.spans(
            [
                (x, each.mean - each.std, each.mean + each.std)
                for x, each in points
                if each.mean is not None and each.std
            ],
            f"thin {styles[line]}",
        )
        means = [(x, float("nan") if each.mean is None else each.mean) for x, each in points]
        chart.line(means, styles[line], dots=not curve.frozen)
    return chart.svg(about)


def _range(curves: Sequence[_Curve]) -> tuple[float, float]:
    values = [
        each.mean + sign * (each.std or 0.0)
        for curve in curves
        for each in curve.points.values()
        for sign in (-1, 1)
        if each.mean is not None
    ]
    return min(values, default=0.0), max(values, default=100.0)


def _percent(low: float, high: float, span: float = NARROWEST) -> Axis:
    """An axis of at least `span` points: differences of a few hundredths must not look like slopes."""
    middle, half = (low + high) / 2, 0.56 * max(span, high - low)
    return Axis(middle - half, middle + half)


def _mean_hm(results: Sequence[Result], place: int) -> float:
    """NaN, which is a break in the line, where no seed has that domain's HM."""
    values = [result.domains[place].metrics.hm for result in results if place < len(result.domains)]
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else float("nan")


def _several_seeds(figures: SuiteFigures) -> bool:
    return len({cell.seed for cell in figures.collected.cells}) > 1
