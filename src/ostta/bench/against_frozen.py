"""Comparison with the frozen row: differences, windows of the stream, and ranks over streams."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.types import Error
from ..evaluation.intervals import ALPHA, LEVEL, Outcomes, Resampling, holm, interval
from ..evaluation.metrics import Values
from .collected import Names
from .figures import DELTA, Figure, SuiteFigures
from .records import PAIRED, Over, records_of
from .result import lower_is_better
from .spec import RunSpec, stream_key


@dataclass(frozen=True)
class ToFrozen:
    """A figure of a row minus that of the frozen row, on one stream, or on the mean of `streams` (`column` is empty).

    value, frozen: the two figures. low, high: the paired 95 % interval; None if there is none. images: number of
    different images of the interval; 0 for an interval over seeds. shown: number of images of a run, summed over
    streams.
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


def to_frozen(figures: SuiteFigures) -> list[ToFrozen]:
    """Return the differences of the headline, in the order of the tables."""
    found = []
    for column, row in itertools.product(figures.columns, figures.rows):
        against, figure = figures.frozen_row(row, column), figures.figure(row, column, DELTA)
        own, base = (None if each is None else figures.mean(each, column) for each in (row, against))
        if against is None or figure is None or figure.mean is None or own is None or base is None:
            continue
        ours, theirs = figures.results(row, column), figures.results(against, column)
        seeds = tuple(sorted(seed for seed in ours if seed in theirs))
        found.append(_to_frozen(figures, row, column, (own, base), figure, ours[seeds[0]].shown, seeds))
    return found


def means_to_frozen(figures: SuiteFigures) -> list[ToFrozen]:
    """Return the mean of each row over its streams, for rows with all streams of their block and several streams."""
    parts: dict[Names, list[ToFrozen]] = {}
    for one in to_frozen(figures):
        parts.setdefault(one.row, []).append(one)
    most: dict[Names, int] = {}
    for row, listed in parts.items():
        most[row[:-1]] = max(most.get(row[:-1], 0), len(listed))
    whole = {row: listed for row, listed in parts.items() if len(listed) == most[row[:-1]] > 1}
    columns = {row: (row, [one.column for one in listed]) for row, listed in whole.items()}
    pooled = figures.means_over(columns, f"{DELTA}_{figures.headline}")
    found = []
    for row, listed in whole.items():
        own, base = (statistics.fmean(getattr(one, name) for one in listed) for name in ("value", "frozen"))
        seeds = tuple(sorted(set.intersection(*(set(one.seeds) for one in listed))))
        shown = sum(one.shown for one in listed)
        found.append(_to_frozen(figures, row, (), (own, base), pooled[row], shown, seeds, len(listed)))
    return found


def _to_frozen(
    figures: SuiteFigures,
    row: Names,
    column: Names,
    values: tuple[float, float],
    figure: Figure,
    shown: int,
    seeds: tuple[int, ...],
    streams: int = 1,
) -> ToFrozen:
    assert figure.mean is not None
    metric, (own, base) = figures.headline, values
    interval = (figure.low, figure.high, figure.over, figure.images)
    return ToFrozen(row, column, metric, own, base, figure.mean, *interval, shown, seeds, streams, figure.marked)


@dataclass(frozen=True)
class WindowedDifferences:
    """The windows of a stream. recovered: images until the method recovered after the hostile part; None for never."""

    windows: tuple[Window, ...]
    recovered: int | None

    @property
    def worst(self) -> Window:
        return min(self.windows, key=lambda window: window.value)


def against_frozen(figures: SuiteFigures, row: Names, column: Names) -> WindowedDifferences | None:
    """Compare a row with the frozen row in windows; None for the frozen row, or if records are missing."""
    frozen = figures.frozen_row(row, column)
    if frozen is None:
        return None
    ours, theirs = figures.results(row, column), figures.results(frozen, column)
    seeds = [seed for seed in ours if seed in theirs and ours[seed].stream_identity == theirs[seed].stream_identity]
    try:
        folder = figures.collected.folder
        pairs = [tuple(records_of(each[seed], folder, PAIRED).outcomes for each in (ours, theirs)) for seed in seeds]
    except Error:
        return None
    if not pairs or any(one.images != other.images for one, other in pairs):
        return None
    found = window_differences([one for one, _ in pairs], [other for _, other in pairs], figures.suite.windows)
    return WindowedDifferences(found, recovered(pairs, hostile_images(ours[seeds[0]].spec)))


def hostile_images(spec: RunSpec) -> int:
    """Return the number of images of the hostile part at the start of a stream; 0 if all of it is hostile."""
    scenario = spec.scenario
    if scenario.kind in ("unknown_first", "one_class_first"):
        return scenario.images
    return 2 * scenario.images if scenario.kind == "covered" else 0


@dataclass(frozen=True)
class RanksOfBackbone:
    """The ranks of the rows of one backbone, or a sentence that explains why there are none."""

    backbone: str
    metric: str
    rows: dict[str, Names]
    ranks: Ranks | None
    why_not: str = ""


def ranks_of(figures: SuiteFigures) -> Iterator[RanksOfBackbone]:
    """Return the average ranks of the headline, for each backbone with several rows and streams."""
    for backbone, rows in _rows_by_backbone(figures).items():
        columns = _streams(figures, list(rows.values()))
        values = {name: [figures.mean(row, column) for column in columns] for name, row in rows.items()}
        whole = {
            name: [value for value in found if value is not None] for name, found in values.items() if None not in found
        }
        if len(whole) < 2 or len(columns) < 2:
            continue
        needed, kept = streams_needed(len(whole)), {name: rows[name] for name in whole}
        if len(columns) < needed:
            sentence = (
                f"No average ranks over streams ({backbone}): a significant difference between {len(whole)} methods "
                f"needs at least {needed} streams, and there are {len(columns)}."
            )
            yield RanksOfBackbone(backbone, figures.headline, kept, None, sentence)
        else:
            higher = not lower_is_better(figures.headline)
            yield RanksOfBackbone(backbone, figures.headline, kept, average_ranks(whole, higher_is_better=higher))


def _rows_by_backbone(figures: SuiteFigures) -> dict[str, dict[str, Names]]:
    """Return the rows by backbone and name. A row with the same runs as an earlier row is left out."""
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
    """Return the columns with figures of at least two rows, one for each stream."""
    found: dict[str, Names] = {}
    for column in figures.columns:
        there = [row for row in rows if figures.mean(row, column) is not None]
        if len(there) > 1:
            result = next(iter(figures.results(there[0], column).values()))
            found.setdefault(stream_key(result.spec), column)
    return list(found.values())


METRIC = "open_accuracy"


# A window is below the frozen row if its interval is below this difference in points.
POINTS = -2.0


# A method has recovered when this number of consecutive images is at most this number of points below.
STRETCH, NEAR = 200, -1.0


@dataclass(frozen=True)
class Window:
    """The difference in the window from image `start` on. `below`: whether it is significantly below `POINTS`."""

    start: int
    value: float
    low: float
    high: float
    below: bool


def window_differences(ours: Sequence[Outcomes], theirs: Sequence[Outcomes], size: int) -> tuple[Window, ...]:
    """Return the differences in windows of `size` images, with one run a seed on each side.

    The intervals have Holm's correction: the window with the strongest evidence has the level 1 - 0.05 / n, the next 1
    - 0.05 / (n - 1), and so on until a window is not below `POINTS`; all later windows have its level.
    """
    length = min(len(run.labels) for run in (*ours, *theirs))
    starts = list(range(0, length - length % size, size)) or [0]
    resampled = {}
    for start in starts:
        parts = [[_part(run, start, size) for run in side] for side in (ours, theirs)]
        drawn = Resampling(parts[0])
        first, second = (drawn.values(side, METRIC) for side in parts)
        resampled[start] = first - second
    # The smaller the share of resamples in which a window is not below, the stronger the evidence.
    order = sorted(starts, key=lambda start: (float((resampled[start][1:] >= POINTS).mean()), resampled[start][0]))
    windows, left, stopped = {}, len(starts), False
    for start in order:
        found = interval(resampled[start], 1 - (1 - LEVEL) / left)
        below = not stopped and found.high < POINTS
        stopped = stopped or not below
        left -= not stopped
        windows[start] = Window(start, found.difference, found.low, found.high, below)
    return tuple(windows[start] for start in starts)


def recovered(pairs: Sequence[tuple[Outcomes, ...]], start: int) -> int | None:
    """Return the images after `start` until the first stretch that is close to the frozen row; None for never."""
    length = min(len(run.labels) for pair in pairs for run in pair)
    gains = [one.right[:length].astype(float) - other.right[:length] for one, other in pairs]
    better = np.mean(gains, axis=0)[start:]
    if len(better) < STRETCH:
        return None
    sums = np.concatenate([[0.0], np.cumsum(better)])
    near = 100 * (sums[STRETCH:] - sums[:-STRETCH]) / STRETCH >= NEAR
    return int(near.argmax()) if near.any() else None


def _part(run: Outcomes, start: int, size: int) -> Outcomes:
    part = slice(start, start + size)
    columns = (run.labels, run.scores, run.accepted, run.index, run.source, run.number, run.domain)
    return Outcomes.of(*(column[part] for column in columns))


@dataclass(frozen=True)
class Ranks:
    """Methods, the best first, with their average ranks over streams. Equal figures share a rank.

    differ: p-value of Friedman's test. apart: pairs that differ significantly, the better method first. joined: the
    longest ranges of methods, in the order of ranks, in which no pair differs significantly.
    """

    methods: tuple[str, ...]
    average: tuple[float, ...]
    streams: int
    differ: float
    apart: frozenset[tuple[str, str]]

    @property
    def joined(self) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for start in range(len(self.methods)):
            end = start + 1
            while end < len(self.methods) and not any(
                (one, self.methods[end]) in self.apart for one in self.methods[start:end]
            ):
                end += 1
            stretch = self.methods[start:end]
            # A range within an earlier range is redundant.
            if len(stretch) > 1 and not any(set(stretch) <= set(other) for other in found):
                found.append(stretch)
        return found


def streams_needed(methods: int) -> int:
    """Return the fewest streams on which a pair can differ significantly, if one method is better on all of them.

    >>> streams_needed(2), streams_needed(4), streams_needed(10)
    (6, 8, 11)
    """
    pairs = methods * (methods - 1) // 2
    return math.ceil(1 + math.log2(max(1, pairs) / ALPHA) - 1e-9)


def average_ranks(values: Mapping[str, Sequence[float]], *, higher_is_better: bool = True) -> Ranks:
    """Compute ranks from the figures of each method, one a stream, in the same order for all methods.

    >>> figures = {"a": [9, 8, 9, 7, 8, 9, 9, 8], "b": [5, 4, 6, 3, 5, 4, 5, 6], "c": [5, 5, 5, 4, 4, 5, 4, 6]}
    >>> ranks = average_ranks(figures)
    >>> ranks.methods[0], ranks.average[0], ranks.joined
    ('a', 1.0, [('b', 'c')])
    """
    from scipy.stats import friedmanchisquare, rankdata

    streams = len(next(iter(values.values()), ()))
    if len(values) < 2 or streams < 2 or any(len(each) != streams for each in values.values()):
        raise Error(
            "Average ranks need at least two methods with figures on the same two or more streams.",
            code="ranks-impossible",
        )
    names = list(values)
    table = np.array([values[name] for name in names], np.float64) * (1 if higher_is_better else -1)
    average = rankdata(-table, axis=0).mean(axis=1)
    order = sorted(range(len(names)), key=lambda place: (average[place], names[place]))
    if len(names) > 2:
        differ = 1.0 if np.ptp(table, axis=0).max() == 0 else float(friedmanchisquare(*table).pvalue)
    else:
        differ = _signed_ranks(table[0] - table[1])
    pairs = list(itertools.combinations(order, 2))
    chances = holm([_signed_ranks(table[one] - table[other]) for one, other in pairs])
    apart = {
        (names[one], names[other])
        for (one, other), chance in zip(pairs, chances, strict=True)
        if differ < ALPHA and chance < ALPHA
    }
    return Ranks(
        tuple(names[place] for place in order),
        tuple(float(average[place]) for place in order),
        streams,
        differ,
        frozenset(apart),
    )


def _signed_ranks(differences: Values) -> float:
    from scipy.stats import wilcoxon

    # Streams with equal figures count half for each side.
    return 1.0 if not differences.any() else float(wilcoxon(differences, zero_method="zsplit").pvalue)
