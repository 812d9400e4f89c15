"""The figures of a suite: means and spreads over seeds, differences to the frozen row, what is best, and what the paper has."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ..paper.values import PaperValue, find
from ..result import Result
from ..spec import run_key
from ..suite import METRICS, Cell
from .metric_values import metric_value, why_not_comparable
from .suite_results import SuiteResults

Names = tuple[str, ...]
FROZEN = "zero_shot"
DELTA = "delta"
# Shown beside the metrics of every suite.
COST = ("updates", "ms")


@dataclass(frozen=True)
class Figure:
    """One figure. None: there is none. `std` is the sample standard deviation over `seeds` runs, None for a single one.

    paper: the paper's figure, with its `doubt`. gap: ours minus the paper's, where that means something; else `apart` says why not.
    """

    mean: float | None
    std: float | None
    seeds: int
    best: bool = False
    paper: float | None = None
    doubt: str = ""
    gap: float | None = None
    apart: str = ""


@dataclass(frozen=True)
class _Place:
    """The cells of one row and column, one for each seed, and their results as far as they are there."""

    cells: tuple[Cell, ...]
    results: dict[int, Result]
    shortened: bool

    @property
    def frozen(self) -> bool:
        return self.cells[0].spec.method == FROZEN


class SuiteFigures:
    """The figures of a suite by row, column and metric, and by part for those domains that the suite shows on their own.

    The metrics are the suite's, `COST`, and `DELTA`: the headline's difference to the frozen row of the same backbone and stream, seed
    by seed.
    """

    def __init__(self, collected: SuiteResults, fpr95: str = "interpolated") -> None:
        self.collected, self.suite, self.fpr95 = collected, collected.suite, fpr95
        self.headline = "hm" if "hm" in self.suite.metrics else self.suite.metrics[0]
        self.cost = tuple(metric for metric in COST if metric not in self.suite.metrics)
        self._places = self._grouped()
        self.columns = list(dict.fromkeys(column for _, column in self._places))
        self.rows = self._ordered_rows()
        self._figures: dict[tuple[Names, Names, str, str], Figure] = {}
        for metric in (*self.suite.metrics, *self.cost):
            self._fill(metric)
        for part in self.suite.parts:
            self._fill(self.headline, part)
        self._fill_deltas()

    def figure(self, row: Names, column: Names, metric: str, part: str = "") -> Figure | None:
        """None where the suite has no such cell."""
        return self._figures.get((row, column, metric, part))

    def is_frozen(self, row: Names) -> bool:
        return any(place.frozen for (name, _), place in self._places.items() if name == row)

    def results(self, row: Names, column: Names) -> dict[int, Result]:
        """The results of a place by seed."""
        place = self._places.get((row, column))
        return {} if place is None else place.results

    def frozen_row(self, row: Names, column: Names) -> Names | None:
        """The frozen row that this place is measured against; None where there is none, or it is one itself."""
        place = self._places.get((row, column))
        if place is None or place.frozen:
            return None
        return self._frozen.get((column, _stream(place.cells[0])))

    @property
    def any_best(self) -> bool:
        return any(figure.best for figure in self._figures.values())

    @cached_property
    def distinct(self) -> list[tuple[Names, Names, Result]]:
        """Every result once, by the first place that shows it."""
        seen: dict[str, tuple[Names, Names, Result]] = {}
        for row in self.rows:
            for column in self.columns:
                for result in self.results(row, column).values():
                    seen.setdefault(run_key(result.spec), (row, column, result))
        return list(seen.values())

    @cached_property
    def _frozen(self) -> dict[tuple[Names, str], Names]:
        found: dict[tuple[Names, str], Names] = {}
        for (row, column), place in self._places.items():
            if place.frozen:
                found.setdefault((column, _stream(place.cells[0])), row)
        return found

    def _grouped(self) -> dict[tuple[Names, Names], _Place]:
        cells: dict[tuple[Names, Names], list[tuple[int, Cell]]] = {}
        for number, cell in enumerate(self.collected.cells):
            cells.setdefault((cell.row, cell.column), []).append((number, cell))
        places = {}
        for name, numbered in cells.items():
            found = {cell.seed: self.collected.result(cell) for _, cell in numbered}
            places[name] = _Place(
                tuple(cell for _, cell in numbered),
                {seed: result for seed, result in found.items() if result is not None},
                any(number in self.collected.shortened for number, _ in numbered),
            )
        return places

    def _ordered_rows(self) -> list[Names]:
        """As in the suite, but in each block of rows the frozen one first."""
        rows = list(dict.fromkeys(row for row, _ in self._places))
        blocks = list(dict.fromkeys(row[:-1] for row in rows))
        return sorted(rows, key=lambda row: (blocks.index(row[:-1]), not self.is_frozen(row)))

    def _values(self, place: _Place, metric: str, part: str) -> dict[int, float]:
        if metric == "hm_std":
            # Of all seeds together: one number, filed under the first seed.
            figures = list(self._values(place, "hm", part).values())
            return {0: statistics.stdev(figures)} if len(figures) > 1 else {}
        read = {seed: metric_value(result, metric, self.fpr95, part) for seed, result in place.results.items()}
        return {seed: value for seed, value in read.items() if value is not None}

    def _fill(self, metric: str, part: str = "") -> None:
        for (row, column), place in self._places.items():
            figure = _summed(list(self._values(place, metric, part).values()))
            if metric == "hm_std":
                figure = replace(figure, seeds=len(place.results))
            if metric in self.suite.metrics:
                figure = self._beside_paper(figure, place, metric, part)
            self._figures[row, column, metric, part] = figure
        for group in self._rivals():
            self._mark_best([(row, column, metric, part) for row, column in group], metric)

    def _fill_deltas(self) -> None:
        for (row, column), place in self._places.items():
            figure = Figure(None, None, 0)
            against = self.frozen_row(row, column)
            if against is not None:
                ours = self._values(place, self.headline, "")
                base = self._values(self._places[against, column], self.headline, "")
                figure = _summed([ours[seed] - base[seed] for seed in ours if seed in base])
                figure = self._delta_beside_paper(figure, (row, column), (against, column))
            self._figures[row, column, DELTA, ""] = figure

    def _beside_paper(self, figure: Figure, place: _Place, metric: str, part: str) -> Figure:
        cell = place.cells[0]
        printed = _printed(cell, metric, part)
        if printed is None:
            return figure
        figure = replace(figure, paper=printed.value, doubt=printed.doubt)
        if figure.mean is None:
            return figure
        reasons = (
            why_not_comparable(result, cell, metric, shortened=place.shortened, fpr95=self.fpr95)
            for result in place.results.values()
        )
        apart = next((reason for reason in reasons if reason), "a doubtful figure" if printed.doubt else "")
        return replace(figure, apart=apart, gap=None if apart else figure.mean - printed.value)

    def _delta_beside_paper(self, figure: Figure, own: tuple[Names, Names], frozen: tuple[Names, Names]) -> Figure:
        one, other = (self._figures[*place, self.headline, ""] for place in (own, frozen))
        if one.paper is None or other.paper is None:
            return figure
        doubt = "; ".join(dict.fromkeys(part.doubt for part in (one, other) if part.doubt))
        paper = one.paper - other.paper
        # A gap of both means a gap of their difference.
        figure = replace(figure, paper=paper, doubt=doubt)
        if figure.mean is None:
            return figure
        apart = one.apart or other.apart
        return replace(figure, apart=apart, gap=None if apart else figure.mean - paper)

    def _rivals(self) -> Iterator[list[tuple[Names, Names]]]:
        """The places that are compared with each other: one column, one backbone, one stream."""
        groups: dict[tuple[Names, str], list[tuple[Names, Names]]] = {}
        for (row, column), place in self._places.items():
            groups.setdefault((column, _stream(place.cells[0])), []).append((row, column))
        yield from groups.values()

    def _mark_best(self, names: list[tuple[Names, Names, str, str]], metric: str) -> None:
        """The best mean, and every mean that is no further from it than their combined spread."""
        arrow = METRICS[metric][-1] if metric in self.suite.metrics else ""
        means = {name: mean for name in names if (mean := self._figures[name].mean) is not None}
        if arrow not in ("↑", "↓") or len(means) < 2:
            return
        top = max(means, key=means.__getitem__) if arrow == "↑" else min(means, key=means.__getitem__)
        for name, mean in means.items():
            spread = math.hypot(self._figures[name].std or 0.0, self._figures[top].std or 0.0)
            if abs(means[top] - mean) <= spread:
                self._figures[name] = replace(self._figures[name], best=True)


def _summed(values: list[float]) -> Figure:
    if not values:
        return Figure(None, None, 0)
    return Figure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def _stream(cell: Cell) -> str:
    """Backbone and stream of a cell: what a frozen row must share with it, whatever the method and its options."""
    names = (
        "backbone",
        "desired",
        "undesired",
        "corruption",
        "severity",
        "ratio",
        "limit",
        "classes",
        "scenario",
        "draw",
    )
    return repr([getattr(cell.spec, name) for name in names])


def _printed(cell: Cell, metric: str, part: str) -> PaperValue | None:
    """The paper's figure: one without doubt where several tables have it."""
    values = find(**(cell.paper_part(part) if part else cell.paper), metric=metric)
    return next((value for value in values if not value.doubt), values[0] if values else None)
