"""The parts of a suite's page that are drawn image by image: charts of the runs that kept records, and images of their streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...core.types import Error
from ...core.words import counted
from ...pages import Bullets, Grid, Part, Picture, Section, Text
from ..result import Result
from ..suite import METRICS, lower_is_better
from ..tables.suite_figures import Names, SuiteFigures
from . import run_charts
from .image_strips import Images, Judged, changes
from .lead import row_name, stream_name
from .run_columns import RunColumns, score_limits

# Runs that are drawn, and streams of which images are shown.
MOST_PICTURED, MOST_STREAMS = 12, 4
MEANING = (
    "Scores say how well each image fits its best class: the further the two hills stand apart, the easier it is to say “I don't know”. "
    "The threshold of a histogram is the last one. Over time, each dot is one image when it came, and accuracies are over all images so far. "
    "Charts of one stream have the same axes."
)
# Reads the images of a run's stream again; an Error says why it cannot.
OpenImages = Callable[[Result], Images]

Place = tuple[Names, Names]


class RunsDrawn:
    """The records of a suite's runs, one seed a place."""

    def __init__(self, figures: SuiteFigures) -> None:
        self.figures = figures
        self.results: dict[Place, Result] = {}
        self.problems: list[str] = []
        self._read: dict[str, RunColumns | None] = {}
        for column in figures.columns:
            for row in figures.rows:
                found = figures.results(row, column).values()
                kept = next((result for result in found if result.records is not None), None)
                if kept is not None:
                    self.results[row, column] = kept

    def columns(self, result: Result) -> RunColumns | None:
        """What a run said image by image; None where its records cannot be read, which is then among the problems."""
        name = str(result.records)
        if name not in self._read:
            try:
                self._read[name] = RunColumns.read(self.figures.collected.folder / name)
            except Error as problem:
                self._read[name] = None
                self.problems.append(str(problem))
        return self._read[name]

    def section(self) -> Section:
        """Three charts for each run, stream by stream, as many runs as the page has room for, and what was left out."""
        chosen = dict(list(self.results.items())[:MOST_PICTURED])
        read = {place: columns for place, result in chosen.items() if (columns := self.columns(result)) is not None}
        parts: list[Part] = [Text(MEANING, "note"), run_charts.SCORES_KEY, run_charts.ACCURACIES_KEY] if read else []
        left = len(self.results) - len(chosen)
        more = [f"{left} more runs kept records and are not drawn here: `--only` chooses others."] if left else []
        if self.problems or more:
            parts.append(Bullets([*self.problems, *more]))
        drawn: dict[Names, list[Picture]] = {}
        for row, column in read:
            drawn.setdefault(column, []).extend(self._pictures((row, column), read))
        sections = [Section(stream_name(column), [Grid(found, small=True)]) for column, found in drawn.items()]
        return Section("Scores, and accuracies over time", parts, sections)

    def _pictures(self, place: Place, read: dict[Place, RunColumns]) -> Iterator[Picture]:
        (row, column), run = place, read[place]
        name = row_name(self.figures, row)
        about = ", ".join([name, *column])
        # Scores of one kind have one range in a column; caches score in hundreds what others score in cosines.
        alike = [other for (_, at), other in read.items() if at == column and _scale(other) == _scale(run)]
        limits = score_limits(alike)
        peak = run_charts.histogram_peak(alike, limits)
        yield Picture(run_charts.histogram(run, limits, peak, about), f"{name}: scores", method=row[-1])
        yield Picture(run_charts.scores_over_time(run, limits, about), f"{name}: scores over time", method=row[-1])
        frozen = self.figures.frozen_row(row, column)
        runs = {"": run}
        if frozen is not None and (frozen, column) in read:
            runs = {"frozen": read[frozen, column], **runs}
        chart = run_charts.accuracies_over_time(runs, about)
        yield Picture(chart, f"{name}: accuracies over time", method=row[-1])


def image_sections(drawn: RunsDrawn, images: OpenImages | None) -> Iterator[Section]:
    """Images of the first streams: what the frozen row said of them, and what the best other row made of it."""
    pairs = list(_pairs(drawn))
    if not pairs or images is None:
        return
    sections, problems = list[Section](), dict[str, list[str]]()
    name = METRICS[drawn.figures.headline].rstrip(" ↑↓")
    for column, (before, after) in pairs:
        if len(sections) == MOST_STREAMS:
            break
        results = [drawn.figures.results(row, column) for row in (before, after)]
        seed = next(
            (seed for seed in results[0] if seed in results[1] and all(side[seed].records for side in results)), None
        )
        if seed is None:
            continue
        read = [drawn.columns(side[seed]) for side in results]
        if read[0] is None or read[1] is None or len(read[0]) != len(read[1]):
            continue
        try:
            strips = list(changes(Judged(before[-1], read[0]), Judged(after[-1], read[1]), images(results[0][seed])))
        except Error as problem:
            problems.setdefault(str(problem), []).append(stream_name(column))
            continue
        about = Text(
            f"Here {before[-1]}, and {after[-1]}, the row with the best {name} on this stream; seed {seed}.", "note"
        )
        sections.append(Section(stream_name(column), [about, *strips]))
    left = len(pairs) - len(sections) - sum(map(len, problems.values()))
    notes = [
        *(f"No images of {', '.join(streams)}: {problem}" for problem, streams in problems.items()),
        *([f"{counted(left, 'more stream')} with records, not shown: `--only` chooses others."] if left > 0 else []),
    ]
    reading = (
        "Below each image: what it shows, then the answer of each row with its score and, where there was one, the threshold. "
        "A green edge: right with the second row; a red one: wrong."
    )
    parts: list[Part] = [Text(reading, "note")] if sections else []
    yield Section("Images", [*parts, *([Bullets(notes)] if notes else [])], sections)


def _pairs(drawn: RunsDrawn) -> Iterator[tuple[Names, tuple[Names, Names]]]:
    """For each stream the frozen row, and of the rows measured against it the one with the best headline."""
    figures = drawn.figures
    sign = -1 if lower_is_better(figures.headline) else 1
    for column in figures.columns:
        best: tuple[float, Names, Names] | None = None
        for row in figures.rows:
            frozen = figures.frozen_row(row, column)
            figure = figures.figure(row, column, figures.headline)
            if frozen is None or figure is None or figure.mean is None:
                continue
            if all((each, column) in drawn.results for each in (row, frozen)) and (
                best is None or sign * figure.mean > best[0]
            ):
                best = sign * figure.mean, frozen, row
        if best is not None:
            yield column, (best[1], best[2])


def _scale(run: RunColumns) -> bool:
    return bool(run.scores.max() > 2)
