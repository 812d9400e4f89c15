"""Parts of a page that are drawn image by image: charts of runs, and images of their streams."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..bench.collected import Names
from ..bench.figures import SuiteFigures
from ..bench.metric_values import lower_is_better, metric_name
from ..bench.records import RunRecords, read_records, score_limits
from ..bench.result import Result
from ..core.types import Error, compared
from ..core.words import counted
from . import (
    Axis,
    Bullets,
    Chart,
    Grid,
    Key,
    Part,
    Picture,
    Section,
    Shot,
    Strip,
    Text,
)
from . import runs as run_charts

# Pixels of a side at most; smaller images stay as they are.
LARGEST = 112


# Images of one kind: one line on a wide page, two on a narrow one.
MOST = 6


DONT_KNOW = "I don't know"


class Images(Protocol):
    """The images of a stream by their places, and the names of its classes."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    def image(self, step: int) -> Image.Image: ...


@dataclass(frozen=True)
class Judged:
    """A run by the name that a page has for it, and what it said of each image."""

    name: str
    run: RunRecords

    def words(self, step: int, classes: Sequence[str]) -> str:
        """The answer with the score, beside the threshold where there was one."""
        run = self.run
        answer = _class(int(run.index[step]), classes) if run.known[step] else DONT_KNOW
        score, threshold = float(run.scores[step]), float(run.thresholds[step])
        return f"{self.name}: {answer}, {compared(score, threshold if math.isfinite(threshold) else None)}"


def drawn_records(path: Path) -> RunRecords:
    """Read the records of a run for charts and images; an Error if no score is finite."""
    records = read_records(path)
    if not records.has_scores:
        raise Error(f"None of the scores in the records {path} is finite.", code="records-unreadable")
    return records


def changed_sides(before: Judged, after: Judged) -> dict[str, NDArray[np.int64]]:
    """The places of the stream by how the second run changed what the first said, the changes first."""
    first, second = before.run.right, after.run.right
    return {
        f"Wrong with {before.name}, right with {after.name}": np.flatnonzero(~first & second),
        f"Right with {before.name}, wrong with {after.name}": np.flatnonzero(first & ~second),
        "Right with both": np.flatnonzero(first & second),
        "Wrong with both": np.flatnonzero(~first & ~second),
    }


def changes(before: Judged, after: Judged, images: Images, kinds: int = 4) -> Iterator[Strip]:
    """One strip for each kind that has an image."""
    total = len(before.run)
    for title, steps in list(changed_sides(before, after).items())[:kinds]:
        if len(steps):
            chosen = _spread(steps, before.run.labels)
            # A stream may show an image several times: once is enough here.
            shots = {one.picture: one for one in (_shot(step, before, after, images) for step in chosen)}
            yield Strip(f"{title}: {counted(len(steps), 'image')} of {total:,}", list(shots.values()))


def stream_shots(run: RunRecords, images: Images, desired: bool, most: int = MOST) -> Iterator[tuple[int, Shot]]:
    """Images of one side, evenly through the stream, with their places."""
    steps = np.flatnonzero((run.labels >= 0) == desired)
    for step in evenly(steps, most):
        truth = truth_of(step, run, images.classes)
        yield step, shot(images.image(step), f"Image {step + 1}, {truth}", [truth])


def shot(image: Image.Image, alt: str, lines: Iterable[str], right: bool | None = None) -> Shot:
    """A small copy: of small images every pixel, as PNG, of large ones a JPEG."""
    small = image.convert("RGB")
    small.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    tiny = max(small.size) <= LARGEST // 2
    buffer = io.BytesIO()
    small.save(buffer, "PNG" if tiny else "JPEG", **({} if tiny else {"quality": 82}))
    return Shot(buffer.getvalue(), alt, tuple(lines), right, "image/png" if tiny else "image/jpeg")


def _shot(step: int, before: Judged, after: Judged, images: Images) -> Shot:
    truth = truth_of(step, before.run, images.classes)
    answers = [judged.words(step, images.classes) for judged in (before, after)]
    alt = f"Image {step + 1} of the stream, {truth}; {'; '.join(answers)}"
    return shot(images.image(step), alt, [truth, *answers], bool(after.run.right[step]))


def truth_of(step: int, run: RunRecords, classes: Sequence[str]) -> str:
    """What an image shows: its class, or none of them."""
    label = int(run.labels[step])
    return _class(label, classes) if label >= 0 else "none of the classes"


def _class(number: int, classes: Sequence[str]) -> str:
    """Records may have been changed, or be of a class list that was longer."""
    return classes[number] if 0 <= number < len(classes) else f"class {number}"


def _spread(steps: NDArray[np.int64], labels: NDArray[np.int64]) -> list[int]:
    """Some desired and some undesired ones, in the order of the stream."""
    known, unknown = steps[labels[steps] >= 0], steps[labels[steps] < 0]
    wanted = MOST - min(len(unknown), MOST // 2)
    chosen = evenly(known, wanted)
    return sorted(chosen + evenly(unknown, MOST - len(chosen)))


def evenly(steps: NDArray[np.int64], most: int = MOST) -> list[int]:
    """At most so many of them, from the first to the last."""
    if not len(steps) or most < 1:
        return []
    places = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).astype(np.int64))
    return [int(step) for step in steps[places]]


BINS = 50


# What a chart of this size can show of a long stream.
MOST_DOTS, MOST_STEPS = 500, 160


CURVES = {"Acc_D": "known", "Acc_U": "unknown", "HM": "hm"}


SCORES_KEY = Key([("known", "desired"), ("unknown", "undesired"), ("rule dashed", "threshold")])


ACCURACIES_KEY = Key(
    [
        ("rule known", "Acc_D"),
        ("rule unknown", "Acc_U"),
        ("rule", "HM"),
        ("rule dotted", "the same of the frozen classifier"),
    ]
)


Limits = tuple[float, float]


def histogram_peak(runs: list[RunRecords], limits: Limits) -> int:
    """The highest bar of all runs, so that their charts have one scale."""
    return max(int(counts.max()) for run in runs for counts in _counts(run, limits))


def histogram(run: RunRecords, limits: Limits, peak: int, about: str) -> str:
    """Scores of desired and undesired images, and the last threshold."""
    chart = Chart(Axis(*limits, "score"), Axis(0, 1.05 * max(1, peak)), height=150)
    edges = np.linspace(*limits, BINS + 1).tolist()
    for counts, style in zip(_counts(run, limits), ("known", "unknown"), strict=True):
        if counts.any():
            chart.bars(edges, counts.tolist(), style)
    if np.isfinite(run.thresholds[-1]):
        chart.upright(float(run.thresholds[-1]), "threshold")
    return chart.svg(f"{about}: how many images have each score, desired and undesired ones")


def scores_over_time(run: RunRecords, limits: Limits, about: str) -> str:
    """Scores where they fell in the stream, with the threshold of that moment."""
    chart = Chart(_images(len(run)), Axis(*limits), height=150)
    steps = run.thinned(MOST_DOTS)
    labels, scores = run.labels[steps], run.scores[steps]
    for chosen, style in ((labels >= 0, "known"), (labels < 0, "unknown")):
        chart.dots(zip(steps[chosen].tolist(), scores[chosen].tolist(), strict=True), style)
    lines = run.thinned(MOST_STEPS)
    chart.line(zip(lines.tolist(), run.thresholds[lines].tolist(), strict=True), "threshold")
    return chart.svg(f"{about}: the score of each image when it came, and the threshold of that moment")


def accuracies_over_time(runs: Mapping[str, RunRecords], about: str, height: int = 150) -> str:
    """Acc_D, Acc_U and HM over the images seen so far; the first of several runs dotted, as the frozen reference, the last one solid."""
    longest = max(len(run) for run in runs.values())
    chart = Chart(_images(longest), Axis(0, 100), height=height)
    for number, run in enumerate(runs.values()):
        steps = run.thinned(MOST_STEPS)
        kind = "" if number == len(runs) - 1 else " frozen" if number == 0 else " other"
        for curve, values in run.cumulative().items():
            chart.line(zip(steps.tolist(), values[steps].tolist(), strict=True), CURVES[curve] + kind)
    return chart.svg(f"{about}: percent right over the images seen so far")


def _images(count: int) -> Axis:
    marks = [(number, f"{number:,}") for number in sorted({0, count // 2, count})]
    return Axis(0, max(1, count), "images seen", marks)


def _counts(run: RunRecords, limits: Limits) -> list[NDArray[np.int64]]:
    edges = np.linspace(*limits, BINS + 1)
    return [np.histogram(run.scores[chosen], edges)[0] for chosen in (run.labels >= 0, run.labels < 0)]


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
        self._read: dict[str, RunRecords | None] = {}
        for column in figures.columns:
            for row in figures.rows:
                found = figures.results(row, column).values()
                kept = next((result for result in found if result.records is not None), None)
                if kept is not None:
                    self.results[row, column] = kept

    def columns(self, result: Result) -> RunRecords | None:
        """What a run said image by image; None where its records cannot be read, which is then among the problems."""
        name = str(result.records)
        if name not in self._read:
            try:
                self._read[name] = drawn_records(self.figures.collected.folder / name)
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

    def _pictures(self, place: Place, read: dict[Place, RunRecords]) -> Iterator[Picture]:
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
    name = metric_name(drawn.figures.headline)
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


def _scale(run: RunRecords) -> bool:
    return bool(run.scores.max() > 2)


def row_name(figures: SuiteFigures, row: Names) -> str:
    """A row by its last axis alone, where the others have one entry: the name of the only backbone tells nothing apart."""
    return row[-1] if len({each[:-1] for each in figures.rows}) == 1 else " / ".join(row)


def stream_name(column: Names) -> str:
    """A column of the suite, for a heading."""
    return " / ".join(column) or "This stream"
