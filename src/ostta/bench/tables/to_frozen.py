"""Each method's difference to the frozen row, stream by stream and over all streams, as one list: for sentences and pictures.

    figures = figures_of("ostta-runs")                        # a folder, whatever lies there; opening.py
    figures = figures_of("embedded/table-cifar", Path(out))   # or a suite
    for one in to_frozen(figures):                            # stream by stream, in the order of the tables
        print(one.row, one.column, one.difference, one.low, one.high, one.images, one.seeds, one.marked)
    for one in means_to_frozen(figures):                      # each row over all streams that it shares with the frozen row
        print(one.row, one.difference, one.low, one.high, one.streams)

An interval is over images where both runs kept records, else over seeds that draw images (`over` says which), else there is none.
`marked`: the interval excludes zero, also by Holm's correction for all comparisons of the metric. Nothing else may be called better.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from .evidence import Over
from .suite_figures import Figure, Names, SuiteFigures


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
