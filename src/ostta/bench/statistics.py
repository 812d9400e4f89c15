"""Paired intervals, marks, windows and ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..core.types import Error
from ..evaluation.intervals import (
    ALPHA,
    LEVEL,
    METRICS,
    OF_SCORES,
    Interval,
    Outcomes,
    Resampling,
    Values,
    holm,
    interval,
    over_images,
    over_seeds,
)
from .records import PAIRED, read_records
from .result import Result
from .spec import run_key


@dataclass(frozen=True, eq=False)
class _Measured:
    """What of a run's records is kept: its figures in all resamples, and what it said of each image in the order of the stream."""

    values: dict[str, Values]
    # Of the images in their order: two runs can be paired where it is the same.
    order: int
    places: NDArray[np.int64]
    answers: NDArray[np.int64]
    index: NDArray[np.int64]
    scores: Values

    def said(self, metric: str) -> NDArray[Any]:
        """What of it the metric depends on."""
        if metric in OF_SCORES:
            return self.scores
        return self.index if metric == "accuracy" else self.answers


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """The differences of pairs of runs, one row a pair: of the images as they are, then in each resample.

    images: how many different ones. changed: on how many of them the two sides differ, in any pair.
    """

    resampled: Values
    images: int
    changed: int


class PairedDifferences:
    """Differences between the runs of a suite in the same resamples, as far as records are there.

    All runs share one set of resamples, so differences may be averaged over streams too. `unusable` are the
    files of records that cannot be read, or are of other images than the rest.
    """

    def __init__(self, folder: Path, results: Iterable[Result], metrics: Sequence[str]) -> None:
        self._folder, self._metrics = folder, [metric for metric in metrics if metric in METRICS]
        self.unusable: list[str] = []
        self._measured: dict[str, _Measured | None] = {}
        # One run of each stream is enough to know which images there are.
        kept = [result for result in results if result.records is not None and self._metrics]
        streams = {result.stream_identity: result for result in kept}
        shown = [outcomes for result in streams.values() if (outcomes := self._read(result)) is not None]
        self._resampling = Resampling(shown) if shown else None

    def __bool__(self) -> bool:
        return self._resampling is not None

    def difference(self, ours: Sequence[Result], theirs: Sequence[Result], metric: str) -> PairedDifference | None:
        """One run a seed on each side; None where it cannot be had."""
        if self._resampling is None or metric not in self._metrics or not ours:
            return None
        parts, images, changed = [], set[int](), set[int]()
        for one, other in zip(ours, theirs, strict=True):
            if one.stream_identity != other.stream_identity:
                return None
            first, second = self._of(one), self._of(other)
            if first is None or second is None:
                return None
            if first.order != second.order:
                self._give_up(one)
                return None
            parts.append(first.values[metric] - second.values[metric])
            images.update(first.places.tolist())
            changed.update(first.places[first.said(metric) != second.said(metric)].tolist())
        rows = np.stack(parts)
        return PairedDifference(rows, len(images), len(changed)) if np.isfinite(rows[:, 0]).all() else None

    def _of(self, result: Result) -> _Measured | None:
        key = run_key(result.spec)
        if key not in self._measured:
            self._measured[key] = self._measure(result)
        return self._measured[key]

    def _measure(self, result: Result) -> _Measured | None:
        outcomes, drawn = self._read(result), self._resampling
        if outcomes is None or drawn is None:
            return None
        continual = result.spec.scenario.kind == "continual"
        try:
            # The HM of a continual stream is the mean of its domains'.
            values = {m: drawn.values([outcomes], m, by_domain=continual and m == "hm") for m in self._metrics}
            places = drawn.places(outcomes)
        except KeyError:
            self._give_up(result)
            return None
        answers = np.where(outcomes.accepted, outcomes.index, -1)
        return _Measured(values, hash(tuple(outcomes.images)), places, answers, outcomes.index, outcomes.scores)

    def _read(self, result: Result) -> Outcomes | None:
        if result.records is None:
            return None
        try:
            return read_records(self._folder / result.records, PAIRED).outcomes
        except Error:
            self._give_up(result)
            return None

    def _give_up(self, result: Result) -> None:
        if result.records is not None and result.records not in self.unusable:
            self.unusable.append(result.records)


Over = Literal["images", "images and seeds", "seeds"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The 95 % interval of one difference, its p-value, and what was drawn for them.

    images: how many different ones the interval is over, and changed: on how many of them the two rows differ; 0 where it is over
    seeds. resampled: one row a seed, for means over streams. seeds: which ones.
    """

    interval: Interval
    chance: float
    over: Over
    images: int = 0
    changed: int = 0
    resampled: Values | None = None
    seeds: tuple[int, ...] = ()


def evidence(
    paired: PairedDifferences,
    ours: Mapping[int, Result],
    theirs: Mapping[int, Result],
    metric: str,
    differences: Mapping[int, float],
) -> Evidence | None:
    """Of `metric`, whose `differences` seed by seed are given; None where no interval can be had."""
    first, second = ([side[seed] for seed in differences] for side in (ours, theirs))
    found = paired.difference(first, second, metric)
    if found is not None:
        made = of_resampled(found.resampled, found.changed, found.images, tuple(differences))
        if made is not None:
            return made
    # Seeds that order the same images anew say nothing about other images.
    if all(ours[seed].spec.draw == theirs[seed].spec.draw == "images" for seed in differences):
        seeds = over_seeds(list(differences.values()))
        return None if seeds is None else Evidence(*seeds, over="seeds")
    return None


def of_resampled(resampled: Values, changed: int, images: int, seeds: tuple[int, ...] = ()) -> Evidence | None:
    """None where too few resamples have the figure. `resampled` may have one row for each of the `seeds`."""
    found = interval(resampled)
    if not math.isfinite(found.low):
        return None
    over: Over = "images and seeds" if len(np.atleast_2d(resampled)) > 1 else "images"
    return Evidence(found, over_images(resampled, changed), over, images, changed, resampled, seeds)


def told_apart(family: Sequence[Evidence]) -> list[bool]:
    """Which of several differences may be marked: the interval excludes zero, and the chance is small by Holm's correction."""
    corrected = holm([each.chance for each in family])
    return [each.interval.excludes_zero and chance < ALPHA for each, chance in zip(family, corrected, strict=True)]


METRIC = "open_accuracy"


# A window is below the frozen row where its interval is, by so many points.
POINTS = -2.0


# A stream has recovered where so many images in a row are no more than so many points below.
STRETCH, NEAR = 200, -1.0


@dataclass(frozen=True)
class Window:
    """The difference in one window that begins at image `start`, with its interval; `below`: wholly below `POINTS`, by Holm."""

    start: int
    value: float
    low: float
    high: float
    below: bool


def course(ours: Sequence[Outcomes], theirs: Sequence[Outcomes], size: int) -> tuple[Window, ...]:
    """The differences in windows of `size` images, one run a seed on each side.

    Their intervals are Holm's: the window with the strongest evidence against it is held to the level 1 - 0.05 / n, the next to
    1 - 0.05 / (n - 1), and so on until one is not below `POINTS`; all that follow are held to that one's.
    """
    length = min(len(run.labels) for run in (*ours, *theirs))
    starts = list(range(0, length - length % size, size)) or [0]
    resampled = {}
    for start in starts:
        parts = [[_part(run, start, size) for run in side] for side in (ours, theirs)]
        drawn = Resampling(parts[0])
        first, second = (drawn.values(side, METRIC) for side in parts)
        resampled[start] = first - second
    # The share of resamples in which a window is not below: the smaller, the stronger the evidence that it is.
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
    """From image `start` on, how many images until the first stretch begins that is as good as the frozen row's, or nearly."""
    length = min(len(run.labels) for pair in pairs for run in pair)
    better = np.mean([_right(one)[:length] - _right(other)[:length] for one, other in pairs], axis=0)[start:]
    if len(better) < STRETCH:
        return None
    sums = np.concatenate([[0.0], np.cumsum(better)])
    near = 100 * (sums[STRETCH:] - sums[:-STRETCH]) / STRETCH >= NEAR
    return int(near.argmax()) if near.any() else None


def _right(run: Outcomes) -> NDArray[np.float64]:
    known = run.accepted & (run.index == run.labels)
    return np.where(run.labels >= 0, known, ~run.accepted).astype(np.float64)


def _part(run: Outcomes, start: int, size: int) -> Outcomes:
    part = slice(start, start + size)
    columns = (run.labels, run.scores, run.accepted, run.index, run.source, run.number, run.domain)
    return Outcomes.of(*(column[part] for column in columns))


@dataclass(frozen=True)
class Ranks:
    """Methods, the best first, with their average ranks over so many streams; 1 is the best, and equals share their ranks.

    differ: the chance of Friedman's test. apart: the pairs that are told apart, the better first. joined: the longest stretches of
    methods, in the order of their ranks, of which no two are told apart.
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
            # A stretch within one that began earlier says nothing more.
            if len(stretch) > 1 and not any(set(stretch) <= set(other) for other in found):
                found.append(stretch)
        return found


def streams_needed(methods: int) -> int:
    """The fewest streams with which any pair could be told apart, if one of the two were better on all of them.

    >>> streams_needed(2), streams_needed(4), streams_needed(10)
    (6, 8, 11)
    """
    pairs = methods * (methods - 1) // 2
    return math.ceil(1 + math.log2(max(1, pairs) / ALPHA) - 1e-9)


def average_ranks(values: Mapping[str, Sequence[float]], *, higher_is_better: bool = True) -> Ranks:
    """From the figures of each method, one a stream, in the same order for all.

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


def _signed_ranks(differences: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    from scipy.stats import wilcoxon

    # Streams on which both are equal count half for each side.
    return 1.0 if not differences.any() else float(wilcoxon(differences, zero_method="zsplit").pvalue)
