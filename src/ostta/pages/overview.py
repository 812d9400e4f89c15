"""Parts of the page of a suite: overview, choices of options, ranks, and the commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..bench.against_frozen import ToFrozen, means_to_frozen, ranks_of, to_frozen
from ..bench.collected import Names
from ..bench.figures import SuiteFigures
from ..bench.footnotes import why_no_interval
from ..bench.metric_values import lower_is_better, metric_name, number
from ..bench.naming import WARNING, choice_remark, needs_data, run_command
from ..bench.result import Result
from ..bench.statistics import Ranks
from ..core.types import Error
from . import Axis, Command, Folded, Grid, Interval, Intervals, Part, Text
from .runs import stream_name

# Panels that one can look over.
MOST_PANELS = 36


def overview(figures: SuiteFigures) -> Iterator[Part]:
    """Differences to the frozen row, the means over all streams first; the headline itself where nothing is frozen."""
    name = metric_name(figures.headline)
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
        yield _empty_panel(_title(figures, title, block), about, [_difference(one) for one in found])


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
                yield _empty_panel(_title(figures, stream_name(column), block), name, rows)


def _title(figures: SuiteFigures, stream: str, block: Names) -> str:
    """The stream, and the block of rows where there are several."""
    several = len({row[:-1] for row in figures.rows}) > 1
    return ", ".join(filter(None, (stream, *(block if several else ()))))


def _empty_panel(title: str, about: str, rows: list[Interval]) -> Intervals:
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


# What rows must share to be one thing with several values of its options.
SAME = ("backbone", "method", "score", "identifier", "profile", "guard")


def choices(figures: SuiteFigures) -> Iterator[Text]:
    """One sentence or two for each group of such rows; none for suites of the paper, whose point is to show how figures vary."""
    if figures.suite.labels:
        return
    name, lower = metric_name(figures.headline), lower_is_better(figures.headline)
    for rows in _groups(figures):
        found: dict[tuple[Names, ...], list[str]] = {}
        results = list[Result]()
        for column in figures.columns:
            values = {
                row: figure.mean
                for row in rows
                if (figure := figures.figure(row, column, figures.headline)) is not None and figure.mean is not None
            }
            if len(values) > 1:
                highest = (min if lower else max)(values.values())
                best = tuple(row for row, value in values.items() if value == highest)
                found.setdefault(best, []).append(" / ".join(column))
                results.append(next(iter(figures.results(best[0], column).values())))
        if not found:
            continue
        first = "; ".join(
            f"{' and '.join(row[-1] for row in best)} on {', '.join(filter(None, columns)) or 'this stream'}"
            for best, columns in found.items()
        )
        said = f"{len(rows)} rows of {results[0].spec.method} differ in {_options(figures, rows)} only. The best {name}: {first}."
        # Of several streams of one kind, one sentence is enough.
        remarks = {remark.partition("(")[0]: remark for result in results if (remark := _remark(result))}
        for remark in remarks.values():
            yield Text(f"{said} {remark}", "warning" if remark.startswith(WARNING) else "note")


def _remark(result: Result) -> str:
    try:
        return choice_remark(result.spec)
    except Error:  # a set from a package that is not here
        return ""


def _groups(figures: SuiteFigures) -> list[list[Names]]:
    groups: dict[tuple[object, ...], dict[Names, str]] = {}
    for row in figures.rows:
        result = _one(figures, row)
        if result is not None:
            shared = tuple(getattr(result.spec, field) for field in SAME)
            groups.setdefault(shared, {})[row] = repr(sorted(result.spec.options.items()))
    # The same run may be shown in several rows.
    return [list(rows) for rows in groups.values() if len(set(rows.values())) > 1]


def _options(figures: SuiteFigures, rows: list[Names]) -> str:
    """The names of the options whose values differ."""
    asked = [result.spec.options for row in rows if (result := _one(figures, row)) is not None]
    names = dict.fromkeys(name for options in asked for name in options)
    return " and ".join(name for name in names if len({repr(options.get(name)) for options in asked}) > 1)


def _one(figures: SuiteFigures, row: Names) -> Result | None:
    return next((found for column in figures.columns for found in figures.results(row, column).values()), None)


def rank_panels(figures: SuiteFigures) -> Iterator[Part]:
    """One panel for each backbone with enough streams, the best row first."""
    found = [(one.backbone, one.ranks) for one in ranks_of(figures) if one.ranks is not None]
    if not found:
        return
    name = metric_name(figures.headline)
    yield Text(
        f"Average rank of {name} over streams; 1 is the best. Lines: from the first to the last row that is not told apart from this one.",
        "note",
    )
    yield Grid([_panel(backbone, ranks) for backbone, ranks in found], small=True)


def _panel(backbone: str, ranks: Ranks) -> Intervals:
    rank = dict(zip(ranks.methods, ranks.average, strict=True))
    rows = []
    for method in ranks.methods:
        stretch = [rank[other] for joined in ranks.joined if method in joined for other in joined] or [rank[method]]
        rows.append(
            Interval(
                method, f"{rank[method]:.2f}", rank[method], min(stretch), max(stretch), method=method.split(" / ")[-1]
            )
        )
    count = len(ranks.methods)
    ticks = [(float(place), str(place)) for place in range(1, count + 1)]
    return Intervals(backbone, f"{ranks.streams} streams", rows, 0.8, count + 0.2, ticks)


def runs_again(figures: SuiteFigures) -> Iterator[Part]:
    """The command of the whole suite, then each run, folded."""
    collected = figures.collected
    data = " --data DATA" * any(needs_data(result.spec) for _, _, result in figures.distinct)
    if collected.of_folder:
        page = f"ostta bench report {shlex.quote(figures.suite.name)}"
    else:
        page = collected.command.replace("ostta bench run", "ostta bench report", 1)
        about = "All runs; what is there already is not run again."
        yield Command(f"{collected.command}{data}", f"{about} DATA is the folder of the data sets." if data else about)
    yield Command(f"{page}{data}", "This page.")
    yield Text("Each run, with its options and where each value came from:")
    places: dict[str, list[Result]] = {}
    for row, column, result in figures.distinct:
        places.setdefault(", ".join([*column, *row]), []).append(result)
    for name, results in places.items():
        seeds = ", ".join(str(result.spec.seed) for result in results)
        files = [collected.file_of(result) for result in results]
        yield Folded(f"{name}, seed{'s' * (len(results) > 1)} {seeds}", list(run_parts(results, files)))


def run_parts(results: Sequence[Result], files: Sequence[str] = ()) -> Iterator[Part]:
    """The commands of runs that differ in the seed only, their options and what they ran on."""
    commands = [command for result in results if (command := run_command(result.spec)) is not None]
    if commands:
        data = " --data DATA" * needs_data(results[0].spec)
        yield Command("\n".join(f"{command}{data}" for command in commands))
    else:
        yield Text("Only the suite can ask for this run.", "note")
    first = results[0]
    options = [
        f"{name} {_value(value)} ({first.option_sources.get(owner, {}).get(name, 'unknown')})"
        for owner, values in first.options.items()
        for name, value in values.items()
    ]
    yield Text(f"Options: {', '.join(options)}." if options else "No options.", "note")
    for result, file in zip(results, files or [""] * len(results), strict=True):
        yield Text(_trace(result, file), "note")


def _trace(result: Result, file: str) -> str:
    """Where a result came from, in one sentence."""
    counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in result.counts.items() if count)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    memory = "" if result.peak_memory_mb is None else f", {result.peak_memory_mb:,.0f} MB at most"
    unfamiliar = f" Unfamiliar classes: {', '.join(result.unfamiliar_classes)}." if result.unfamiliar_classes else ""
    return (
        f"Seed {result.spec.seed}{f', file {file}' if file else ''}: {counts}; {result.updates:,} updates; {result.seconds:,.1f} s{memory}; stream "
        f"{result.stream.hash[:12]}, weights {result.weight_hash[:12]}, class names {result.class_names_hash[:12]}; {versions}; "
        f"{result.hardware}.{unfamiliar}"
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
