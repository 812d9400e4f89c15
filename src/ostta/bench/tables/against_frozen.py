"""A row of a suite against the frozen one along the stream: in consecutive windows, and how long it takes to recover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core.types import Error
from ...evaluation.intervals import LEVEL, Outcomes, Resampling, interval
from ..result import Result
from ..scenario import CoveredScenario, OneClassFirstScenario, UnknownFirstScenario
from ..spec import RunSpec
from .paired import read_outcomes
from .suite_figures import Names, SuiteFigures

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


def hostile_images(spec: RunSpec) -> int:
    """How many images come before the stream is a usual one; 0 where it is hostile all along."""
    scenario = spec.scenario
    if isinstance(scenario, UnknownFirstScenario | OneClassFirstScenario):
        return scenario.images
    return 2 * scenario.images if isinstance(scenario, CoveredScenario) else 0


def _right(run: Outcomes) -> NDArray[np.float64]:
    known = run.accepted & (run.index == run.labels)
    return np.where(run.labels >= 0, known, ~run.accepted).astype(np.float64)


def _part(run: Outcomes, start: int, size: int) -> Outcomes:
    part = slice(start, start + size)
    columns = (run.labels, run.scores, run.accepted, run.index, run.source, run.number, run.domain)
    return Outcomes.of(*(column[part] for column in columns))


def _outcomes(figures: SuiteFigures, result: Result) -> Outcomes:
    if result.records is None:
        raise Error("This run kept no records.")
    return read_outcomes(figures.collected.folder / result.records)
