"""Charts of runs, image by image, and of suites: the headline by domain, and against an option that varies."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bench.collected import Names
from ..bench.figures import SuiteFigures
from ..bench.records import RunRecords
from ..bench.result import Result, metric_name
from .parts import Axis, Chart, Grid, Legend, Part, Picture, Text, image_axis

BINS = 50


# Most dots and points of a chart.
MOST_DOTS, MOST_STEPS = 500, 160


CURVES = {"Acc_D": "known", "Acc_U": "unknown", "HM": "hm"}


SCORES_KEY = Legend([("known", "known images"), ("unknown", "unknown images"), ("rule dashed", "threshold")])


ACCURACIES_KEY = Legend(
    [("rule known", "Acc_D"), ("rule unknown", "Acc_U"), ("rule", "HM"), ("rule dotted", "frozen classifier")]
)


Limits = tuple[float, float]


def histogram_peak(runs: list[RunRecords], limits: Limits) -> int:
    """Return the highest bar of all runs, so that their charts have one scale."""
    return max(int(counts.max()) for run in runs for counts in _counts(run, limits))


def histogram(run: RunRecords, limits: Limits, peak: int, about: str) -> str:
    """Draw the scores of desired and undesired images, and the last threshold."""
    chart = Chart(Axis(*limits, "score"), Axis(0, 1.05 * max(1, peak)), height=150)
    edges = np.linspace(*limits, BINS + 1).tolist()
    for counts, style in zip(_counts(run, limits), ("known", "unknown"), strict=True):
        if counts.any():
            chart.bars(edges, counts.tolist(), style)
    if np.isfinite(run.thresholds[-1]):
        chart.upright(float(run.thresholds[-1]), "threshold")
    return chart.svg(f"{about}: distribution of the scores of known and unknown images")


def scores_over_time(run: RunRecords, limits: Limits, about: str) -> str:
    """Draw the scores in the order of the stream, with the threshold at each step."""
    chart = Chart(image_axis(len(run)), Axis(*limits), height=150)
    steps = run.thinned(MOST_DOTS)
    labels, scores = run.labels[steps], run.scores[steps]
    for chosen, style in ((labels >= 0, "known"), (labels < 0, "unknown")):
        chart.dots(zip(steps[chosen].tolist(), scores[chosen].tolist(), strict=True), style)
    lines = run.thinned(MOST_STEPS)
    chart.line(zip(lines.tolist(), run.thresholds[lines].tolist(), strict=True), "threshold")
    return chart.svg(f"{about}: score of each image and threshold over the stream")


def accuracies_over_time(runs: Mapping[str, RunRecords], about: str) -> str:
    """Draw Acc_D, Acc_U and HM over the images so far.

    Of several runs, the first is dotted as the frozen reference, and the last is solid.
    """
    chart = Chart(image_axis(max(map(len, runs.values()))), Axis(0, 100), height=150)
    for number, run in enumerate(runs.values()):
        steps = run.thinned(MOST_STEPS)
        kind = "" if number == len(runs) - 1 else " frozen" if number == 0 else " other"
        for curve, values in run.cumulative().items():
            chart.line(zip(steps.tolist(), values[steps].tolist(), strict=True), CURVES[curve] + kind)
    return chart.svg(f"{about}: accuracies in percent over the images so far")


def _counts(run: RunRecords, limits: Limits) -> list[NDArray[np.int64]]:
    edges = np.linspace(*limits, BINS + 1)
    return [np.histogram(run.scores[chosen], edges)[0] for chosen in (run.labels >= 0, run.labels < 0)]


# --- suites ---
# Number of colours of lines in the style sheet.
COLOURS = 8


# Smallest range of an axis in percent.
NARROWEST = 2.0


# With more domains than this, every fifth is numbered.
MOST_NAMED = 20


# An axis of a suite is a scale if at least this number of entries differ only in a number.
FEWEST = 3


_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w./])")


class _Scale(NamedTuple):
    """Entries of an axis of the suite that differ in a number, with the number of each entry."""

    axis: str
    label: str
    numbers: dict[str, float]


class _Curve(NamedTuple):
    """Mean and standard deviation of the figures, by the number on the scale."""

    points: dict[float, tuple[float, float]]
    frozen: bool


def domain_charts(figures: SuiteFigures) -> Iterator[Part]:
    """Yield the HM of each domain, one chart for a column of the suite and a block of its rows."""
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
    """Yield the headline against each option that the suite varies in steps."""
    name = metric_name(figures.headline)
    bars = "Vertical lines: standard deviation over the seeds." if _several_seeds(figures) else ""
    for scale in _scales(figures):
        panels = {
            panel: curves
            for panel, curves in _panels(figures, scale).items()
            if max(len(curve.points) for curve in curves.values()) > 1
        }
        if not panels:
            continue
        styles = _styles({line: curve.frozen for curves in panels.values() for line, curve in curves.items()})
        # All charts span the same range of percent, so that slopes can be compared.
        ranges = {panel: _range(list(curves.values())) for panel, curves in panels.items()}
        span = max(NARROWEST, *(high - low for low, high in ranges.values()))
        yield Legend([(f"rule {_key_style(style)}", line) for line, style in styles.items()])
        pictures = []
        for panel, curves in panels.items():
            title = ", ".join([f"{name} against {scale.label}", *panel])
            axis = _percent(*ranges[panel], span)
            pictures.append(Picture(_draw_curves(scale, axis, curves, styles, title), title, bars))
        yield Grid(pictures)


def _panels(figures: SuiteFigures, scale: _Scale) -> dict[Names, dict[str, _Curve]]:
    """Return the curves of each chart: one for each method if the scale is among the rows, else one for each row."""
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
                curves.setdefault(line, _Curve({}, False)).points[x] = figure.mean, figure.std or 0.0
            base = None if against is None else figures.figure(against, column, figures.headline)
            if base is not None and base.mean is not None:
                curves.setdefault("frozen", _Curve({}, True)).points[x] = base.mean, base.std or 0.0
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
    """Return the style of each line: dotted for the frozen line, colours for the others."""
    coloured = [name for name, frozen in lines.items() if not frozen]
    return {name: "frozen" if frozen else f"c{coloured.index(name) % COLOURS}" for name, frozen in lines.items()}


def _key_style(style: str) -> str:
    return "dotted" if style == "frozen" else style


def _domain_key(lines: Mapping[str, tuple[list[float], bool]]) -> Legend:
    styles = _styles({name: frozen for name, (_, frozen) in lines.items()})
    return Legend([(f"rule {_key_style(style)}", name) for name, style in styles.items()])


def _draw_domains(names: list[str], lines: Mapping[str, tuple[list[float], bool]], about: str) -> str:
    styles = _styles({name: frozen for name, (_, frozen) in lines.items()})
    known = [value for values, _ in lines.values() for value in values if math.isfinite(value)]
    marks = [(place, str(place)) for place in range(1, len(names) + 1) if len(names) <= MOST_NAMED or place % 5 == 0]
    low, high = min(known, default=0.0), max(known, default=100.0)
    chart = Chart(Axis(0.5, len(names) + 0.5, "domain", marks), _percent(low, high), height=190)
    # The frozen line is drawn last, because equal lines would hide it.
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
        points = [(x, *curve.points[x]) for x in sorted(curve.points)]
        spans = [(x, mean - std, mean + std) for x, mean, std in points if std]
        chart.spans(spans, f"thin {styles[line]}")
        chart.line([(x, mean) for x, mean, _ in points], styles[line], dots=not curve.frozen)
    return chart.svg(about)


def _range(curves: Sequence[_Curve]) -> tuple[float, float]:
    points = [point for curve in curves for point in curve.points.values()]
    return min(mean - std for mean, std in points), max(mean + std for mean, std in points)


def _percent(low: float, high: float, span: float = NARROWEST) -> Axis:
    """Return an axis of at least `span` points, so that tiny differences do not look like slopes."""
    middle, half = (low + high) / 2, 0.56 * max(span, high - low)
    return Axis(middle - half, middle + half)


def _mean_hm(results: Sequence[Result], place: int) -> float:
    """Return the mean HM of a domain; NaN, which is a gap in the line, if no seed has a value."""
    values = [result.domains[place].metrics.hm for result in results if place < len(result.domains)]
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else float("nan")


def _several_seeds(figures: SuiteFigures) -> bool:
    return len({cell.seed for cell in figures.collected.cells}) > 1
