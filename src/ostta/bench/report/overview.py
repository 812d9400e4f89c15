"""The overview of a suite: every method on every stream, with intervals, on one axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...pages import Axis, Grid, Interval, Intervals, Part, Text
from ..suite import METRICS
from ..tables.footnotes import why_no_interval
from ..tables.layout import number
from ..tables.suite_figures import Names, SuiteFigures
from ..tables.to_frozen import ToFrozen, means_to_frozen, to_frozen
from .lead import stream_name

# Panels that one can look over.
MOST_PANELS = 36


def overview(figures: SuiteFigures) -> Iterator[Part]:
    """Differences to the frozen row, the means over all streams first; the headline itself where nothing is frozen."""
    name = METRICS[figures.headline].rstrip(" ↑↓")
    differences = bool(to_frozen(figures))
    panels = list(_differences(figures, name) if differences else _values(figures, name))
    if not panels:
        return
    bounds = [
        value for panel in panels for row in panel.rows for value in (row.low, row.high, row.value) if value is not None
    ]
    low, high = min([*bounds, 0.0] if differences else bounds), max([*bounds, 0.0] if differences else bounds)
    room = 0.05 * (high - low) or 0.5
    axis = Axis(low - room, high + room)
    ticks = [(value, f"+{text}" if differences and value > 0 else text) for value, text in axis.shown()]
    yield Text(_what(figures, name, differences), "note")
    shown = [replace(panel, low=axis.low, high=axis.high, ticks=ticks) for panel in panels[:MOST_PANELS]]
    yield Grid(shown, small=True)
    if len(panels) > len(shown):
        yield Text(f"{len(panels) - len(shown)} more panels are not drawn: the tables have their figures.", "note")


def _differences(figures: SuiteFigures, name: str) -> Iterator[Intervals]:
    """One panel for the means over streams, one for each stream; and one for each block of rows, such as a backbone."""
    panels: dict[tuple[str, Names], list[ToFrozen]] = {}
    for one in (*means_to_frozen(figures), *to_frozen(figures)):
        title = stream_name(one.column) if one.streams == 1 else f"Mean over {one.streams} streams"
        panels.setdefault((title, one.row[:-1]), []).append(one)
    for (title, block), found in panels.items():
        about = f"frozen: {name} {number(found[0].frozen, figures.headline)}"
        yield _panel(_title(figures, title, block), about, [_difference(one) for one in found])


def _difference(one: ToFrozen) -> Interval:
    text = number(one.difference, one.metric, signed=True)
    if one.low is not None and one.high is not None:
        text += f" [{', '.join(number(bound, one.metric, signed=True) for bound in (one.low, one.high))}]"
    return Interval(one.row[-1], text, one.difference, one.low, one.high, one.marked, one.row[-1])


def _values(figures: SuiteFigures, name: str) -> Iterator[Intervals]:
    """The headline of each row, with one standard deviation over the seeds to each side."""
    for column in figures.columns:
        for block in dict.fromkeys(row[:-1] for row in figures.rows):
            rows = []
            for row in (row for row in figures.rows if row[:-1] == block):
                figure = figures.figure(row, column, figures.headline)
                if figure is not None and figure.mean is not None:
                    text = number(figure.mean, figures.headline)
                    spread = figure.std
                    low, high = (None, None) if spread is None else (figure.mean - spread, figure.mean + spread)
                    rows.append(Interval(row[-1], text, figure.mean, low, high, method=row[-1]))
            if rows:
                yield _panel(_title(figures, stream_name(column), block), name, rows)


def _title(figures: SuiteFigures, stream: str, block: Names) -> str:
    """The stream, and the block of rows where there are several."""
    several = len({row[:-1] for row in figures.rows}) > 1
    return ", ".join(filter(None, (stream, *(block if several else ()))))


def _panel(title: str, about: str, rows: list[Interval]) -> Intervals:
    return Intervals(title, about, rows, 0.0, 1.0, ())


def _what(figures: SuiteFigures, name: str, differences: bool) -> str:
    if not differences:
        return f"{name} of each row on each stream; lines: one standard deviation over the seeds to each side. All panels have one axis."
    if not any(one.low is not None for one in to_frozen(figures)):
        return f"{name} less that of the frozen row on the same stream. All panels have one axis. There are no intervals, as {why_no_interval(figures)}."
    return (
        f"{name} less that of the frozen row on the same stream. All panels have one axis. Lines: the 95 % interval. Filled: differences that are "
        "told apart from zero, corrected for the number of comparisons."
    )
