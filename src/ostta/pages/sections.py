"""Sections of the page of a suite: overview, choices of options, ranks, charts and images of runs, and commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from ..bench.against_frozen import Ranks, ToFrozen, means_to_frozen, ranks_of, to_frozen
from ..bench.collected import Names, Position
from ..bench.figures import SuiteFigures
from ..bench.footnotes import why_no_interval
from ..bench.naming import choice_remark, images_of_stream, needs_data, run_command, seeds_text
from ..bench.records import RunRecords, score_limits
from ..bench.result import Result, lower_is_better, metric_name, number
from ..bench.spec import fields_of
from ..bench.tables import TableCell
from ..core.text import counted
from ..core.types import Error
from .charts import ACCURACIES_KEY, SCORES_KEY, accuracies_over_time, histogram, histogram_peak, scores_over_time
from .images import NamedRun, OpenImages, changes, drawn_records
from .parts import Axis, Bullets, Command, Folded, Grid, Interval, Intervals, Part, Picture, Section, Text, axis_around

# Most panels of the overview.
MOST_PANELS = 36
# All panels get one axis when all of them are known.
NO_AXIS = Axis(0, 1)


def overview(figures: SuiteFigures) -> Iterator[Part]:
    """Yield differences to the frozen row, means over all streams first; without a frozen row, the headline itself."""
    name = metric_name(figures.headline)
    differences = bool(to_frozen(figures))
    panels = list(_differences(figures, name) if differences else _values(figures, name))
    if not panels:
        return
    bounds = [value for panel in panels for row in panel.rows for value in (row.low, row.high, row.value)]
    axis = axis_around([*bounds, 0.0] if differences else bounds)
    yield Text(_explanation(figures, name, differences), "note")
    shown = [replace(panel, axis=axis, signed=differences) for panel in panels[:MOST_PANELS]]
    yield Grid(shown, small=True)
    if len(panels) > len(shown):
        yield Text(f"{len(panels) - len(shown)} more panels are not shown; the tables have their figures.", "note")


def _differences(figures: SuiteFigures, name: str) -> Iterator[Intervals]:
    """Yield one panel for the means over streams and one for each stream, for each block of rows."""
    panels: dict[tuple[str, Names], list[ToFrozen]] = {}
    for one in (*means_to_frozen(figures), *to_frozen(figures)):
        title = stream_name(one.column) if one.streams == 1 else f"Mean over {one.streams} streams"
        panels.setdefault((title, one.row[:-1]), []).append(one)
    for (title, block), found in panels.items():
        about = f"frozen: {name} {number(found[0].frozen, figures.headline)}"
        yield Intervals(_title(figures, title, block), about, [_difference(one) for one in found], NO_AXIS)


def _difference(one: ToFrozen) -> Interval:
    text = TableCell(one.difference, one.metric, True, one.low, one.high).text
    return Interval(one.row[-1], text, one.difference, one.low, one.high, one.marked, one.row[-1])


def _values(figures: SuiteFigures, name: str) -> Iterator[Intervals]:
    """Yield the headline of each row, with one standard deviation over the seeds to each side."""
    for column in figures.columns:
        for block in dict.fromkeys(row[:-1] for row in figures.rows):
            rows = []
            for row in (row for row in figures.rows if row[:-1] == block):
                figure = figures.figure(row, column, figures.headline)
                if figure is not None and figure.mean is not None:
                    text = number(figure.mean, figures.headline)
                    low, high = (None if figure.std is None else figure.mean + sign * figure.std for sign in (-1, 1))
                    rows.append(Interval(row[-1], text, figure.mean, low, high, method=row[-1]))
            if rows:
                yield Intervals(_title(figures, stream_name(column), block), name, rows, NO_AXIS)


def _title(figures: SuiteFigures, stream: str, block: Names) -> str:
    """Return the stream, and the block of rows if there are several."""
    several = len({row[:-1] for row in figures.rows}) > 1
    return ", ".join(filter(None, (stream, *(block if several else ()))))


def _explanation(figures: SuiteFigures, name: str, differences: bool) -> str:
    if not differences:
        return (
            f"{name} of each row on each stream. Lines: one standard deviation over the seeds to each side. All panels "
            "have the same axis."
        )
    if not any(one.low is not None for one in to_frozen(figures)):
        about = f"There are no intervals because {why_no_interval(figures)}."
    else:
        about = "Lines: the 95 % interval. Filled dots: significant differences, after Holm's correction."
    return f"{name} minus that of the frozen row on the same stream. All panels have the same axis. {about}"


# Fields that are equal in rows that differ only in options.
SAME = tuple(name for name in fields_of("model", "method") if name != "options")


def choices(figures: SuiteFigures) -> Iterator[Text]:
    """Yield a remark for each group of rows that differ only in options; none for suites of the paper."""
    if figures.suite.labels:
        return
    name, lower = metric_name(figures.headline), lower_is_better(figures.headline)
    for rows in _groups(figures):
        found: dict[tuple[Names, ...], list[str]] = {}
        results = list[Result]()
        for column in figures.columns:
            values = {row: value for row in rows if (value := figures.mean(row, column)) is not None}
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
        method, options = results[0].spec.method, _options(figures, rows)
        choice = f"{len(rows)} rows of {method} differ only in {options}. The best {name}: {first}."
        remarks: dict[str, Text] = {}
        for result in results:
            with suppress(Error):  # the data set is not registered here
                kind, remark = images_of_stream(result.spec), choice_remark(result.spec)
                text = Text(f"{choice} {remark}", "warning" if kind == "test" else "note")
                # One sentence for several streams of one kind.
                remarks[remark if kind == "own" else kind] = text
        yield from remarks.values()


def _groups(figures: SuiteFigures) -> list[list[Names]]:
    groups: dict[str, dict[Names, str]] = {}
    for row in figures.rows:
        result = _first_result(figures, row)
        if result is not None:
            shared = repr([getattr(result.spec, field) for field in SAME])
            groups.setdefault(shared, {})[row] = repr(sorted(result.spec.options.items()))
    # The same run may be shown in several rows.
    return [list(rows) for rows in groups.values() if len(set(rows.values())) > 1]


def _options(figures: SuiteFigures, rows: list[Names]) -> str:
    """Return the names of the options whose values differ."""
    listed = [result.spec.options for row in rows if (result := _first_result(figures, row)) is not None]
    names = dict.fromkeys(name for options in listed for name in options)
    return " and ".join(name for name in names if len({repr(options.get(name)) for options in listed}) > 1)


def _first_result(figures: SuiteFigures, row: Names) -> Result | None:
    return next((found for column in figures.columns for found in figures.results(row, column).values()), None)


def rank_panels(figures: SuiteFigures) -> Iterator[Part]:
    """Yield one panel for each backbone with enough streams, the best row first."""
    found = [(one.backbone, one.ranks) for one in ranks_of(figures) if one.ranks is not None]
    if not found:
        return
    name = metric_name(figures.headline)
    yield Text(
        f"Average rank of {name} over streams; 1 is the best. Lines: range of the rows without a significant "
        "difference to this row.",
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
    return Intervals(backbone, f"{ranks.streams} streams", rows, Axis(0.8, count + 0.2, marks=ticks))


def command_parts(figures: SuiteFigures) -> Iterator[Part]:
    """Yield the command of the suite, and folded commands of each run."""
    collected = figures.collected
    data = " --data DATA" if any(needs_data(result.spec) for _, _, result in figures.distinct) else ""
    if not collected.of_folder:
        about = "All runs; existing results are reused."
        yield Command(f"{collected.command}{data}", f"{about} DATA is the folder of the data sets." if data else about)
    yield Command(f"ostta bench report {collected.arguments}{data}", "This page.")
    yield Text("Each run, with its options and the source of each value:")
    places: dict[str, list[Result]] = {}
    for row, column, result in figures.distinct:
        places.setdefault(", ".join([*column, *row]), []).append(result)
    for name, results in places.items():
        seeds = seeds_text([result.spec.seed for result in results])
        files = [collected.file_of(result) for result in results]
        yield Folded(f"{name}, {seeds}", list(run_parts(results, files)))


def run_parts(results: Sequence[Result], files: Sequence[str] = ()) -> Iterator[Part]:
    """Yield the commands of runs that differ only in the seed, their options and their provenance."""
    commands = [command for result in results if (command := run_command(result.spec)) is not None]
    if commands:
        data = " --data DATA" if needs_data(results[0].spec) else ""
        yield Command("\n".join(f"{command}{data}" for command in commands))
    else:
        yield Text("`ostta run` cannot describe this run; the suite runs it.", "note")
    first = results[0]
    options = [
        f"{name} {_value(value)} ({first.option_sources.get(owner, {}).get(name, 'unknown')})"
        for owner, values in first.options.items()
        for name, value in values.items()
    ]
    yield Text(f"Options: {', '.join(options)}." if options else "No options.", "note")
    for result, file in zip(results, files or [""] * len(results), strict=True):
        yield Text(_provenance(result, file), "note")


def _provenance(result: Result, file: str) -> str:
    """Return the provenance of a result in one sentence."""
    counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in result.counts.items() if count)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    memory = "" if result.peak_memory_mb is None else f", {result.peak_memory_mb:,.0f} MB at most"
    unfamiliar = f" Unfamiliar classes: {', '.join(result.unfamiliar_classes)}." if result.unfamiliar_classes else ""
    return (
        f"Seed {result.spec.seed}{f', file {file}' if file else ''}: {counts}; {result.updates:,} updates; "
        f"{result.seconds:,.1f} s{memory}; stream {result.stream.hash[:12]}, weights {result.weight_hash[:12]}, "
        f"class names {result.class_names_hash[:12]}; {versions}; {result.hardware}.{unfamiliar}"
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- runs ---
# Most runs with charts, and most streams with images.
MOST_PICTURED, MOST_STREAMS = 12, 4


MEANING = (
    "The score of an image measures how well it fits its best class: the less the distributions of known and unknown "
    "images overlap, the better the score separates them. A histogram shows the last threshold. Over time, each dot "
    "is one image, and accuracies are over all images so far. Charts of one stream have the same axes."
)


class RunCharts:
    """The records of the runs of a suite, one seed a place."""

    def __init__(self, figures: SuiteFigures) -> None:
        self.figures = figures
        self.results: dict[Position, Result] = {}
        self.problems: list[str] = []
        self._read: dict[str, RunRecords | None] = {}
        for column in figures.columns:
            for row in figures.rows:
                found = figures.results(row, column).values()
                kept = next((result for result in found if result.records is not None), None)
                if kept is not None:
                    self.results[row, column] = kept

    def columns(self, result: Result) -> RunRecords | None:
        """Return the records of a run; None if they cannot be read, and the reason is added to `problems`."""
        name = str(result.records)
        if name not in self._read:
            try:
                self._read[name] = drawn_records(self.figures.collected.folder / name)
            except Error as problem:
                self._read[name] = None
                self.problems.append(str(problem))
        return self._read[name]

    def section(self) -> Section:
        """Return three charts for each run, stream by stream, and which runs are left out."""
        chosen = dict(list(self.results.items())[:MOST_PICTURED])
        read = {place: columns for place, result in chosen.items() if (columns := self.columns(result)) is not None}
        parts: list[Part] = [Text(MEANING, "note"), SCORES_KEY, ACCURACIES_KEY] if read else []
        left = len(self.results) - len(chosen)
        more = [f"{counted(left, 'more run')} with records, not shown: `--only` selects others."] if left else []
        if self.problems or more:
            parts.append(Bullets([*self.problems, *more]))
        drawn: dict[Names, list[Picture]] = {}
        for row, column in read:
            drawn.setdefault(column, []).extend(self._pictures((row, column), read))
        sections = [Section(stream_name(column), [Grid(found, small=True)]) for column, found in drawn.items()]
        return Section("Scores, and accuracies over time", parts, sections)

    def _pictures(self, place: Position, read: dict[Position, RunRecords]) -> Iterator[Picture]:
        (row, column), run = place, read[place]
        name = row_name(self.figures, row)
        about = ", ".join([name, *column])
        # Cosines and the scores of caches have different ranges.
        alike = [other for (_, at), other in read.items() if at == column and _scale(other) == _scale(run)]
        limits = score_limits(alike)
        peak = histogram_peak(alike, limits)
        yield Picture(histogram(run, limits, peak, about), f"{name}: scores", method=row[-1])
        yield Picture(scores_over_time(run, limits, about), f"{name}: scores over time", method=row[-1])
        frozen = self.figures.frozen_row(row, column)
        runs = {"": run}
        if frozen is not None and (frozen, column) in read:
            runs = {"frozen": read[frozen, column], **runs}
        chart = accuracies_over_time(runs, about)
        yield Picture(chart, f"{name}: accuracies over time", method=row[-1])


def image_sections(drawn: RunCharts, images: OpenImages | None) -> Iterator[Section]:
    """Yield images of the first streams, with the answers of the frozen row and of the best other row."""
    pairs = list(_pairs(drawn))
    if not pairs or images is None:
        return
    sections, problems = list[Section](), dict[str, list[str]]()
    for column, frozen, best in pairs:
        if len(sections) == MOST_STREAMS:
            break
        try:
            parts = list(_answered_images(drawn, images, column, frozen, best))
        except Error as problem:
            problems.setdefault(str(problem), []).append(stream_name(column))
        else:
            sections += [Section(stream_name(column), parts)] if parts else []
    left = len(pairs) - len(sections) - sum(map(len, problems.values()))
    notes = [
        *(f"No images of {', '.join(streams)}: {problem}" for problem, streams in problems.items()),
        *([f"{counted(left, 'more stream')} with records, not shown: `--only` selects others."] if left > 0 else []),
    ]
    reading = (
        "Below each image: its class, then the answer of each row with score and threshold. A green border: right in "
        "the second row; a red border: wrong."
    )
    about: list[Part] = [Text(reading, "note")] if sections else []
    yield Section("Images", [*about, *([Bullets(notes)] if notes else [])], sections)


def _answered_images(drawn: RunCharts, images: OpenImages, column: Names, frozen: Names, best: Names) -> Iterator[Part]:
    """Yield images of one stream with the answers of two rows, if both have records of one seed."""
    before, after = (drawn.figures.results(row, column) for row in (frozen, best))
    seed = next((seed for seed in before if seed in after and before[seed].records and after[seed].records), None)
    if seed is None:
        return
    first, second = drawn.columns(before[seed]), drawn.columns(after[seed])
    if first is None or second is None or len(first) != len(second):
        return
    name = metric_name(drawn.figures.headline)
    yield Text(f"{frozen[-1]}, and {best[-1]}, which has the best {name} on this stream; seed {seed}.", "note")
    yield from changes(NamedRun(frozen[-1], first), NamedRun(best[-1], second), images(before[seed]))


def _pairs(drawn: RunCharts) -> Iterator[tuple[Names, Names, Names]]:
    """Yield each stream with its frozen row and the row that has the best headline, as far as both have records."""
    figures = drawn.figures
    choose = min if lower_is_better(figures.headline) else max
    for column in figures.columns:
        values: dict[tuple[Names, Names], float] = {}
        for row in figures.rows:
            frozen, value = figures.frozen_row(row, column), figures.mean(row, column)
            if frozen is not None and value is not None and {(row, column), (frozen, column)} <= drawn.results.keys():
                values[frozen, row] = value
        if values:
            yield column, *choose(values, key=values.__getitem__)


def _scale(run: RunRecords) -> bool:
    return bool(run.scores.max() > 2)


def row_name(figures: SuiteFigures, row: Names) -> str:
    """Return the last name of a row, or all names if the rows differ in another axis."""
    return row[-1] if len({each[:-1] for each in figures.rows}) == 1 else " / ".join(row)


def stream_name(column: Names) -> str:
    """Return a column of the suite as a heading."""
    return " / ".join(column) or "This stream"
