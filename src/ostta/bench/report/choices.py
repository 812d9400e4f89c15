"""Rows that differ in options only: on which stream the best of them was found, and a warning where that is a test stream."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.types import Error
from ...pages import Text
from ..result import Result
from ..suite import METRICS, lower_is_better
from ..sweep import WARNING, choice_remark
from ..tables.suite_figures import Names, SuiteFigures

# What rows must share to be one thing with several values of its options.
SAME = ("backbone", "method", "score", "identifier", "profile", "guard")


def choices(figures: SuiteFigures) -> Iterator[Text]:
    """One sentence or two for each group of such rows; none for suites of the paper, whose point is to show how figures vary."""
    if figures.suite.labels:
        return
    name, lower = METRICS[figures.headline].rstrip(" ↑↓"), lower_is_better(figures.headline)
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
