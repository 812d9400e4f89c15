"""Rows against the frozen row: differences, windows of the stream, and ranks over streams."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.types import Error
from ..evaluation.intervals import Outcomes
from .collected import Names
from .figures import Figure, SuiteFigures
from .metric_values import lower_is_better
from .records import PAIRED, read_records
from .result import Result
from .scenario import CoveredScenario, OneClassFirstScenario, UnknownFirstScenario
from .spec import RunSpec, stream_key
from .statistics import Over, Ranks, Window, average_ranks, course, recovered, streams_needed


@dataclass(frozen=True)
class ToFrozen:
    """A row's figure minus the frozen one's, on one stream (`column`), or on the mean of `streams` (`column` is empty).

    value and frozen: the two figures themselves. low, high: the paired 95 % interval; None where none can be given.
    images: how many different ones it is over; 0 where it is over seeds, or there is none. shown: how many images a run saw, of all
    streams together.
    """

    row: Names
    column: Names
    metric: str
    value: float
    frozen: float
    difference: float
    low: float | None
    high: float | None
    over: Over | None
    images: int
    shown: int
    seeds: tuple[int, ...]
    streams: int
    marked: bool


def to_frozen(figures: SuiteFigures, metric: str | None = None) -> list[ToFrozen]:
    """Of the headline, or of another metric that the suite has differences of; rows and streams in the order of the tables."""
    metric = figures.headline if metric is None else metric
    found = []
    for column in figures.columns:
        for row in figures.rows:
            against = figures.frozen_row(row, column)
            figure = figures.figure(row, column, f"delta_{metric}")
            if against is None or figure is None or figure.mean is None:
                continue
            ours, theirs = figures.results(row, column), figures.results(against, column)
            own, base = (figures.figure(each, column, metric) for each in (row, against))
            if own is None or own.mean is None or base is None or base.mean is None:
                continue
            seeds = tuple(sorted(seed for seed in ours if seed in theirs))
            counts = ours[seeds[0]].counts
            shown = counts["desired"] + counts["undesired"]
            found.append(_made(row, column, metric, (own.mean, base.mean), figure, shown, seeds, 1))
    return found


def means_to_frozen(figures: SuiteFigures, metric: str | None = None) -> list[ToFrozen]:
    """Each row's mean over all its streams; only rows that have all the streams of their block, and more than one."""
    parts: dict[Names, list[ToFrozen]] = {}
    for one in to_frozen(figures, metric):
        parts.setdefault(one.row, []).append(one)
    most: dict[Names, int] = {}
    for row, listed in parts.items():
        most[row[:-1]] = max(most.get(row[:-1], 0), len(listed))
    whole = {row: listed for row, listed in parts.items() if len(listed) == most[row[:-1]] > 1}
    pooled = figures.means_over({row: [one.column for one in listed] for row, listed in whole.items()}, metric)
    found = []
    for row, listed in whole.items():
        own, base = (statistics.fmean(getattr(one, name) for one in listed) for name in ("value", "frozen"))
        seeds = tuple(sorted(set.intersection(*(set(one.seeds) for one in listed))))
        shown = sum(one.shown for one in listed)
        found.append(_made(row, (), listed[0].metric, (own, base), pooled[row], shown, seeds, len(listed)))
    return found


def _made(
    row: Names,
    column: Names,
    metric: str,
    values: tuple[float, float],
    figure: Figure,
    shown: int,
    seeds: tuple[int, ...],
    streams: int,
) -> ToFrozen:
    assert figure.mean is not None
    return ToFrozen(
        row=row,
        column=column,
        metric=metric,
        value=values[0],
        frozen=values[1],
        difference=figure.mean,
        low=figure.low,
        high=figure.high,
        over=figure.over,
        images=figure.images,
        shown=shown,
        seeds=seeds,
        streams=streams,
        marked=figure.marked,
    )


@dataclass(frozen=True)
class Course:
    """All windows of a stream, and how many images it took to recover, from where the stream is a usual one; None: never."""

    windows: tuple[Window, ...]
    recovered: int | None

    @property
    def worst(self) -> Window:
        return min(self.windows, key=lambda window: window.value)


def against_frozen(figures: SuiteFigures, row: Names, column: Names) -> Course | None:
    """None where the row is the frozen one, or records are missing."""
    frozen = figures.frozen_row(row, column)
    if frozen is None:
        return None
    ours, theirs = figures.results(row, column), figures.results(frozen, column)
    seeds = [seed for seed in ours if seed in theirs and ours[seed].stream_identity == theirs[seed].stream_identity]
    try:
        pairs = [tuple(_outcomes(figures, each[seed]) for each in (ours, theirs)) for seed in seeds]
    except Error:
        return None
    if not pairs or any(one.images != other.images for one, other in pairs):
        return None
    found = course([one for one, _ in pairs], [other for _, other in pairs], figures.suite.windows)
    return Course(found, recovered(pairs, hostile_images(ours[seeds[0]].spec)))


def hostile_images(spec: RunSpec) -> int:
    """How many images come before the stream is a usual one; 0 where it is hostile all along."""
    scenario = spec.scenario
    if isinstance(scenario, UnknownFirstScenario | OneClassFirstScenario):
        return scenario.images
    return 2 * scenario.images if isinstance(scenario, CoveredScenario) else 0


def _outcomes(figures: SuiteFigures, result: Result) -> Outcomes:
    if result.records is None:
        raise Error("This run kept no records.", code="records-missing")
    return read_records(figures.collected.folder / result.records, PAIRED).outcomes


@dataclass(frozen=True)
class RanksOfBackbone:
    """The ranks of one backbone's rows, or one sentence that says why there are none."""

    backbone: str
    metric: str
    rows: dict[str, Names]
    ranks: Ranks | None
    why_not: str = ""


def ranks_of(figures: SuiteFigures) -> Iterator[RanksOfBackbone]:
    """The average ranks of the headline, one list for each backbone that has several rows and streams."""
    for backbone, rows in _rows_by_backbone(figures).items():
        columns = _streams(figures, list(rows.values()))
        values = {
            name: [figure.mean for column in columns if (figure := figures.figure(row, column, figures.headline))]
            for name, row in rows.items()
        }
        whole = {
            name: [value for value in found if value is not None]
            for name, found in values.items()
            if len(found) == len(columns) and None not in found
        }
        if len(whole) < 2 or len(columns) < 2:
            continue
        needed, kept = streams_needed(len(whole)), {name: rows[name] for name in whole}
        if len(columns) < needed:
            sentence = (
                f"No average ranks over streams ({backbone}): {len(whole)} methods need at least {needed} streams to be told apart, "
                f"and there are {len(columns)}."
            )
            yield RanksOfBackbone(backbone, figures.headline, kept, None, sentence)
        else:
            higher = not lower_is_better(figures.headline)
            yield RanksOfBackbone(backbone, figures.headline, kept, average_ranks(whole, higher_is_better=higher))


def _rows_by_backbone(figures: SuiteFigures) -> dict[str, dict[str, Names]]:
    """Rows by what they are called beside their backbone; a row that shows the runs of another once more is left out."""
    found: dict[str, dict[str, Names]] = {}
    seen: set[tuple[str, ...]] = set()
    for row in figures.rows:
        results = [result for column in figures.columns for result in figures.results(row, column).values()]
        runs = tuple(figures.collected.file_of(result) for result in results)
        if not results or runs in seen:
            continue
        seen.add(runs)
        named = [name for axis, name in zip(figures.suite.rows, row, strict=True) if axis != "backbone"]
        found.setdefault(results[0].spec.backbone, {})[" / ".join(named) or row[-1]] = row
    return found


def _streams(figures: SuiteFigures, rows: Sequence[Names]) -> list[Names]:
    """The columns that at least two of the rows have figures in, each stream once: columns may differ in something else."""
    found: dict[str, Names] = {}
    for column in figures.columns:
        there = [
            row for row in rows if (figure := figures.figure(row, column, figures.headline)) and figure.mean is not None
        ]
        if len(there) > 1:
            result = next(iter(figures.results(there[0], column).values()))
            found.setdefault(stream_key(result.spec), column)
    return list(found.values())
