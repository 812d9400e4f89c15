"""The overview of a suite: every method on every stream, with intervals, on one axis."""

from __future__ import annotations

from collections.abc import Iterator

from ...pages import Axis, Grid, Interval, Intervals, Part, Text
from ..suite import METRICS
from ..tables.layout import number
from ..tables.suite_figures import DELTA, Figure, Names, SuiteFigures

# Panels that one can look over.
MOST_PANELS = 36

Panel = dict[Names, Figure]


def overview(figures: SuiteFigures) -> Iterator[Part]:
    """Differences to the frozen row; the headline itself where nothing is frozen."""
    name = METRICS[figures.headline].rstrip(" ↑↓")
    panels = _panels(figures, DELTA)
    differences = bool(panels)
    if not differences:
        panels = _panels(figures, figures.headline)
    if not panels:
        return
    bounds = [value for panel in panels.values() for figure in panel.values() for value in _reach(figure)]
    low, high = min([*bounds, 0.0] if differences else bounds), max([*bounds, 0.0] if differences else bounds)
    room = 0.05 * (high - low) or 0.5
    axis = Axis(low - room, high + room)
    marks = axis.shown()
    ticks = [(value, f"+{text}" if differences and value > 0 else text) for value, text in marks]
    yield Text(_what(figures, name, differences), "note")
    shown = list(panels.items())[:MOST_PANELS]
    yield Grid(
        [
            Intervals(
                ", ".join([" / ".join(column), *block]) or figures.suite.title,
                _about(figures, panel, column, name) if differences else name,
                [_row(row, figure, figures.headline, signed=differences) for row, figure in panel.items()],
                axis.low,
                axis.high,
                ticks,
            )
            for (column, block), panel in shown
        ],
        small=True,
    )
    if len(panels) > len(shown):
        yield Text(f"{len(panels) - len(shown)} more panels are not drawn: the tables have their figures.", "note")


def _panels(figures: SuiteFigures, metric: str) -> dict[tuple[Names, Names], Panel]:
    """The figures that are there, by stream and block of rows."""
    panels: dict[tuple[Names, Names], Panel] = {}
    for column in figures.columns:
        for row in figures.rows:
            figure = figures.figure(row, column, metric)
            if figure is not None and figure.mean is not None:
                panels.setdefault((column, row[:-1]), {})[row] = figure
    return panels


def _reach(figure: Figure) -> tuple[float, float]:
    mean = figure.mean or 0.0
    if figure.low is not None and figure.high is not None:
        return min(mean, figure.low), max(mean, figure.high)
    return mean - (figure.std or 0.0), mean + (figure.std or 0.0)


def _row(row: Names, figure: Figure, metric: str, *, signed: bool) -> Interval:
    text = number(figure.mean, metric, signed=signed)
    assert figure.mean is not None
    if figure.low is not None and figure.high is not None:
        low, high = (number(bound, metric, signed=True) for bound in (figure.low, figure.high))
        return Interval(row[-1], f"{text} [{low}, {high}]", figure.mean, figure.low, figure.high, figure.excludes_zero, row[-1])
    if figure.std is None:
        return Interval(row[-1], text, figure.mean, method=row[-1])
    low_, high_ = _reach(figure)
    return Interval(row[-1], f"{text} ± {number(figure.std, metric)}", figure.mean, low_, high_, method=row[-1])


def _about(figures: SuiteFigures, panel: Panel, column: Names, name: str) -> str:
    """What the frozen row has there."""
    frozen = figures.frozen_row(next(iter(panel)), column)
    figure = None if frozen is None else figures.figure(frozen, column, figures.headline)
    return "" if figure is None else f"frozen: {name} {number(figure.mean, figures.headline)}"


def _what(figures: SuiteFigures, name: str, differences: bool) -> str:
    if not differences:
        return f"{name} of each row on each stream, in percent; lines: one standard deviation over the seeds to each side."
    intervals = any(
        figure.low is not None for panel in _panels(figures, DELTA).values() for figure in panel.values()
    )
    lines = (
        "lines: the paired 95 % interval; filled dots: differences that are marked in the tables."
        if intervals
        else "there are no intervals, as the runs kept no records; lines, if any: one standard deviation over the seeds to each side."
    )
    return f"{name} less that of the frozen row on the same stream, in points; all panels have one axis; {lines}"
