"""The first sentences of a suite's page: the result, how sure it is, from how many images and seeds."""

from __future__ import annotations

from collections.abc import Sequence

from ..suite import METRICS, lower_is_better
from ..tables.footnotes import why_no_interval
from ..tables.layout import number
from ..tables.suite_figures import Names, SuiteFigures
from ..tables.to_frozen import ToFrozen, means_to_frozen, to_frozen


def lead(figures: SuiteFigures) -> str:
    """The row that is furthest above the frozen one, over all streams where rows have several; and how many differences are marked."""
    single = to_frozen(figures)
    if not single:
        return _without_frozen(figures)
    best = _best(figures, means_to_frozen(figures) or single)
    name, metric = METRICS[best.metric].rstrip(" ↑↓"), best.metric
    where = f"Over {best.streams} streams" if best.streams > 1 else f"On {' / '.join(best.column) or 'this stream'}"
    values = [number(value, metric) for value in (best.value, best.frozen)]
    gain = number(best.difference, metric, signed=True)
    row, ahead = (
        row_name(figures, best.row),
        best.difference != 0 and (best.difference < 0) == lower_is_better(metric),
    )
    who = (
        f"{row} is furthest ahead of the frozen row"
        if ahead
        else f"no row is ahead of the frozen one, and {row} is nearest"
    )
    return (
        f"{where}, {who}: {name} {values[0]} against {values[1]}, {gain} ({_sureness(figures, best)}). N = {best.shown:,} images, {_seeds(best.seeds)}. "
        f"{_marks(figures, single)}"
    ).strip()


def row_name(figures: SuiteFigures, row: Names) -> str:
    """A row by its last axis alone, where the others have one entry: the name of the only backbone tells nothing apart."""
    return row[-1] if len({each[:-1] for each in figures.rows}) == 1 else " / ".join(row)


def stream_name(column: Names) -> str:
    """A column of the suite, for a heading."""
    return " / ".join(column) or "This stream"


def _sureness(figures: SuiteFigures, one: ToFrozen) -> str:
    if one.low is None or one.high is None:
        return f"no interval, as {why_no_interval(figures)}"
    bounds = " to ".join(number(bound, one.metric, signed=True) for bound in (one.low, one.high))
    # Where the interval alone excludes zero, the number of comparisons may still not allow a mark.
    told = "told apart from zero" if one.marked else "not told apart from zero"
    return f"95 % interval {bounds} over {one.over}; {told}"


def _marks(figures: SuiteFigures, single: Sequence[ToFrozen]) -> str:
    """How many differences there are, and which way those go that are marked."""
    known = [one for one in single if one.low is not None]
    if not known:
        return ""
    lower = lower_is_better(figures.headline)
    better = sum(one.marked and (one.difference < 0) == lower for one in known)
    worse = sum(one.marked for one in known) - better
    streams = len({one.column for one in known})
    return (
        f"Of {len(known)} differences to the frozen row, on {streams} stream{'s' * (streams > 1)}, {better} {'is' if better == 1 else 'are'} "
        f"marked as better and {worse} as worse."
    )


def _without_frozen(figures: SuiteFigures) -> str:
    """The best figure of all."""
    name, lower = METRICS[figures.headline].rstrip(" ↑↓"), lower_is_better(figures.headline)
    found = [
        (figure.mean, row, column)
        for row in figures.rows
        for column in figures.columns
        if (figure := figures.figure(row, column, figures.headline)) is not None and figure.mean is not None
    ]
    if not found:
        return f"No run has a {name}."
    value, row, column = min(found, key=lambda each: each[0] if lower else -each[0])
    results = figures.results(row, column)
    counts = next(iter(results.values())).counts
    on = f" on {' / '.join(column)}" if any(column) else ""
    return (
        f"The {'lowest' if lower else 'highest'} {name} is {number(value, figures.headline)}, with {row_name(figures, row)}{on}. N = "
        f"{counts['desired'] + counts['undesired']:,} images, {_seeds(tuple(results))}. There is no frozen row to compare with, and so no interval."
    )


def _best(figures: SuiteFigures, found: Sequence[ToFrozen]) -> ToFrozen:
    sign = -1 if lower_is_better(figures.headline) else 1
    return max(found, key=lambda one: sign * one.difference)


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"
