"""Pictures of a whole suite: the headline figure domain by domain, and against an option that the suite varies."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..result import Result
from ..suite import METRICS
from ..tables.suite_figures import Figure, Names, SuiteFigures
from .run_pictures import FONT, LINE, Picture, canvas, png

COLOURS = ("#2563eb", "#e11d48", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d", "#475569", "#b45309")
MARKERS = "osD^vP*X<>"
# In inches.
WIDTH = 5.0
# The least that the scale of percent spans.
NARROWEST = 2.0
# More domains than this are numbered in the picture, not named.
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


def domain_pictures(figures: SuiteFigures) -> Iterator[Picture]:
    """HM of each domain, where runs have domains: one picture for a column of the suite and a block of its rows."""
    for column in figures.columns:
        for block in dict.fromkeys(row[:-1] for row in figures.rows):
            lines: dict[str, tuple[list[float], bool]] = {}
            names: list[str] = []
            for row in (row for row in figures.rows if row[:-1] == block):
                found = list(figures.results(row, column).values())
                if found and found[0].domains:
                    names = names or [domain.name for domain in found[0].domains]
                    lines[row[-1]] = [_mean_hm(found, place) for place in range(len(names))], figures.is_frozen(row)
            if lines:
                yield Picture(
                    ", ".join(["HM of each domain", *block, *column]),
                    "The domains in the order of the stream; dotted: the frozen classifier."
                    + (" Means over the seeds." if _several_seeds(figures) else ""),
                    _draw_domains(names, lines),
                )


def strips(figures: SuiteFigures) -> Iterator[Picture]:
    """The headline figure against every option that the suite varies in steps."""
    name = METRICS[figures.headline].rstrip(" ↑↓")
    bars = " Bars: standard deviation over the seeds." if _several_seeds(figures) else ""
    for scale in _scales(figures):
        for panel, curves in _panels(figures, scale).items():
            if max(len(curve.points) for curve in curves.values()) > 1:
                title = ", ".join([f"{name} against {scale.label}", *panel])
                yield Picture(title, f"Dotted: the frozen classifier.{bars}", _draw_strip(scale, name, curves))


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


def _draw_domains(names: list[str], lines: Mapping[str, tuple[list[float], bool]]) -> bytes:
    named = len(names) <= MOST_NAMED
    figure, axes = canvas((WIDTH, 3.0 + _legend_height(len(lines)) + (0.8 if named else 0)))
    places = list(range(1, len(names) + 1))
    colours = iter(COLOURS * (1 + len(lines) // len(COLOURS)))
    for name, (values, frozen) in lines.items():
        style: dict[str, Any] = (
            {"color": LINE, "ls": ":", "zorder": 3} if frozen else {"color": next(colours), "ls": "-"}
        )
        # The frozen line on top: methods that do not move would hide it.
        axes.plot(places, values, marker="o" if named else None, ms=3.5, lw=1.5, label=name, **style)
    if named:
        axes.set_xticks(places, names, rotation=55, ha="right", rotation_mode="anchor")
    else:
        axes.set_xlabel("domain, in the order of the stream")
    axes.set_ylabel("HM, percent")
    axes.grid(axis="y", color="#e5e7eb", lw=0.8)
    _legend(figure, axes, lines)
    return png(figure)


def _draw_strip(scale: _Scale, name: str, curves: Mapping[str, _Curve]) -> bytes:
    figure, axes = canvas((WIDTH, 3.0 + _legend_height(len(curves))))
    values = sorted({x for curve in curves.values() for x in curve.points})
    logarithmic = values[0] > 0 and values[-1] / values[0] >= 50
    number = 0
    for line, curve in curves.items():
        x = sorted(curve.points)
        y = [curve.points[value].mean for value in x]
        if curve.frozen:
            axes.plot(x, y, ":", color=LINE, lw=1.5, label=line, zorder=3)
            continue
        bars = [curve.points[value].std or 0.0 for value in x]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        number += 1
        axes.errorbar(
            x, y, bars if any(bars) else None, color=colour, lw=1.5, marker=marker, ms=4.5, capsize=2.5, label=line
        )
    low, high = axes.get_ylim()
    if high - low < NARROWEST:
        # Differences of a few hundredths must not look like slopes.
        axes.set_ylim((low + high - NARROWEST) / 2, (low + high + NARROWEST) / 2)
    if logarithmic:
        axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlabel(scale.label)
    axes.set_ylabel(f"{name}, percent")
    axes.grid(axis="y", color="#e5e7eb", lw=0.8)
    _legend(figure, axes, curves)
    return png(figure)


def _legend_height(lines: int) -> float:
    """In inches, of three names a line."""
    return 0.2 * ((lines + 2) // 3)


def _legend(figure: Any, axes: Any, names: Iterable[str]) -> None:
    """Below the picture, where it hides no line, in the order of the lines."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    shown = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in shown],
        shown,
        loc="outside lower center",
        ncols=len(shown) if len(shown) < 5 else 3,
        frameon=False,
        fontsize=FONT,
    )


def _mean_hm(results: Sequence[Result], place: int) -> float:
    """NaN, which is a break in the line, where no seed has that domain's HM."""
    values = [result.domains[place].metrics.hm for result in results if place < len(result.domains)]
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else float("nan")


def _several_seeds(figures: SuiteFigures) -> bool:
    return len({cell.seed for cell in figures.collected.cells}) > 1
