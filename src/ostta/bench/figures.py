"""The figures of a suite: means and spreads over seeds, differences to the frozen row, the best rows, and the gap to the paper."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..config.registry import require_known
from ..core.types import Error
from ..evaluation.intervals import Values
from ..evaluation.measures import MEASURES, RunColumns, find_measure, is_measure, regret, worst_tenth
from ..evaluation.metrics import FPR95
from .collected import Names, Place, SuiteResults, collect, grouped
from .metric_values import METRICS, lower_is_better, metric_value
from .paper.values import BACKBONES, PaperValue, find
from .records import MEASURED, read_records
from .result import Result
from .spec import run_key
from .statistics import Evidence, Over, PairedDifferences, evidence, of_resampled, told_apart
from .suite import Cell

# Properties of the memory and the machine: a shorter stream changes none of them.
OF_ANY_LENGTH = ("classes", "bank_features", "bank_mb", "adapted_parameters", "added_parameters")


OF_THE_MACHINE = ("ms", "gpu_memory_gb")


def why_not_comparable(result: Result, cell: Cell, metric: str, *, shortened: bool, fpr95: str) -> str:
    """Why a figure of this run cannot be set against the paper's; empty where it can. `shortened`: by a limit that is not the suite's."""
    if metric in OF_THE_MACHINE:
        return "another machine"
    backbone = result.spec.backbone
    # The embedded models play the part of the paper's without being them.
    if backbone.startswith("embedded") or BACKBONES.get(backbone) != cell.paper.get("backbone"):
        return "another backbone"
    if metric == "fpr95" and FPR95[fpr95] != "fpr95":
        return "another convention of FPR95"
    if metric in OF_ANY_LENGTH:
        return ""
    sides = [side for side in (result.stream.desired, result.stream.undesired) if side is not None]
    if any(side.origin != "official" for side in sides):
        return "not the published images"
    return "fewer images" if shortened or result.counts.get("undesired_missing", 0) else ""


FROZEN, RIVAL = "zero_shot", "rosita"


# The headline's difference to the frozen row, whatever the headline is.
DELTA = "delta"


# Shown beside the metrics of every suite.
COST = ("updates", "ms")


@dataclass(frozen=True)
class Figure:
    """One figure. None: there is none. `std` is the sample standard deviation over `seeds` runs, None for a single one.

    low, high: the paired 95 % interval of a difference, where there is one. `over` says what was drawn for it: "images", of which there
    were so many different ones, "images and seeds", or "seeds". marked: it excludes zero, also by Holm's correction for all
    comparisons of its metric. best: better than every other row of its column, backbone and stream, in the same family of comparisons.
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
    low: float | None = None
    high: float | None = None
    over: Over | None = None
    images: int = 0
    marked: bool = False
    # A time, of which at least one was taken on a busy machine.
    busy: bool = False

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Difference:
    """A metric minus the same of the frozen row, or of ROSITA with the paper's score and identifier, on the same stream."""

    metric: str
    against: str

    @property
    def name(self) -> str:
        return f"{DELTA}_{self.metric}" + ("" if self.against == FROZEN else f"_to_{self.against}")


class SuiteFigures:
    """The figures of a suite by row, column and metric, and by part for those domains that the suite shows on their own.

    The metrics are the suite's, `COST`, and the names of `differences`, to the frozen row and to ROSITA on the same backbone and
    stream, seed by seed; `DELTA` is the headline's to the frozen row. Where a column has several rows of the frozen classifier, with
    other scores or identifiers, the one as published is the frozen row. `groups` are columns by the groups that the suite puts them in.
    """

    def __init__(self, collected: SuiteResults, fpr95: str = "interpolated") -> None:
        self.collected, self.suite, self.fpr95 = collected, collected.suite, fpr95
        self.headline = "hm" if "hm" in self.suite.metrics else self.suite.metrics[0]
        self.cost = tuple(metric for metric in COST if metric not in self.suite.metrics)
        self._places = grouped(collected)
        self.columns = list(dict.fromkeys(column for _, column in self._places))
        self.rows = self._ordered_rows()
        self._figures: dict[tuple[Names, Names, str, str], Figure] = {}
        measured = self.suite.differences or (self.headline,)
        self.differences = [Difference(metric, against) for metric in measured for against in (FROZEN, RIVAL)]
        results = (result for place in self._places.values() for result in place.results.values())
        self.paired = PairedDifferences(
            collected.folder, results, [self._resampled(m) for m in {*self.suite.metrics, *measured}]
        )
        self._evidence: dict[tuple[Names, Names, str], Evidence] = {}
        self._read_columns: dict[str, RunColumns | None] = {}
        for metric in (*self.suite.metrics, *self.cost):
            self._fill(metric)
        for part in self.suite.parts:
            self._fill(self.headline, part)
        for difference in self.differences:
            self._fill_difference(difference)
        for metric in dict.fromkeys((*self.suite.metrics, *measured)):
            self._mark(metric)
        for part in self.suite.parts:
            self._mark(self.headline, part)
        self.groups = self._grouped_columns(len(self.suite.columns))

    def figure(self, row: Names, column: Names, metric: str, part: str = "") -> Figure | None:
        """None where the suite has no such cell."""
        return self._figures.get((row, column, f"{DELTA}_{self.headline}" if metric == DELTA else metric, part))

    def is_frozen(self, row: Names) -> bool:
        return any(self._is_reference(FROZEN, *name) for name in self._places if name[0] == row)

    def results(self, row: Names, column: Names) -> dict[int, Result]:
        """The results of a place by seed."""
        place = self._places.get((row, column))
        return {} if place is None else place.results

    def frozen_row(self, row: Names, column: Names) -> Names | None:
        """The frozen row that this place is measured against; None where there is none, or it is one itself."""
        return self.reference_row(FROZEN, row, column)

    def reference_row(self, method: str, row: Names, column: Names) -> Names | None:
        """As `frozen_row`, for the row of `method`: the frozen classifier, or ROSITA."""
        place = self._places.get((row, column))
        if place is None or self._is_reference(method, row, column):
            return None
        return self._references[method].get((column, place.stream))

    @property
    def shown_differences(self) -> list[Difference]:
        """Those that tables have room for: to ROSITA only where intervals are known."""
        if len(self.rows) < 2:
            return []
        to_rival = self.paired and any(self._references[RIVAL].values())
        frozen = any(self.is_frozen(row) for row in self.rows)
        return [each for each in self.differences if (frozen if each.against == FROZEN else to_rival)]

    @property
    def sections(self) -> dict[str, list[Names]]:
        """Columns that are shown together: those with the same groups on all column axes but the last."""
        return self._grouped_columns(max(0, len(self.suite.columns) - 1)) or {"": self.columns}

    def group_figure(self, row: Names, group: str, metric: str) -> Figure:
        """The mean over the columns of a group; none where one of them is missing."""
        columns = self.groups[group]
        found = [self.figure(row, column, metric) for column in columns]
        means = [figure.mean for figure in found if figure is not None and figure.mean is not None]
        if not means or len(means) < len(columns):
            return Figure(None, None, 0)
        mean = Figure(statistics.fmean(means), None, min(figure.seeds for figure in found if figure is not None))
        return _with_evidence(mean, *self._of_groups.get(metric, {}).get((row, group), (None, False)))

    def means_over(self, columns: Mapping[Names, Sequence[Names]], metric: str | None = None) -> dict[Names, Figure]:
        """Each row's mean difference to the frozen row over the given columns, all rows corrected together."""
        name = f"{DELTA}_{metric or self.headline}"
        asked = {(row, ""): [self._evidence.get((row, column, name)) for column in of] for row, of in columns.items()}
        found = self._means(asked)
        figures = {row: [self._figures[row, column, name, ""] for column in of] for row, of in columns.items()}
        return {
            row: _with_evidence(
                Figure(statistics.fmean(f.mean for f in of if f.mean is not None), None, min(f.seeds for f in of)),
                *found.get((row, ""), (None, False)),
            )
            for row, of in figures.items()
        }

    @cached_property
    def _of_groups(self) -> dict[str, dict[tuple[Names, str], tuple[Evidence, bool]]]:
        """How sure the means over groups of columns are, by difference; those of one difference are corrected together."""
        places = list(itertools.product(self.rows, self.groups.items()))
        return {
            name: self._means(
                {
                    (row, group): [self._evidence.get((row, column, name)) for column in of]
                    for row, (group, of) in places
                }
            )
            for name in (difference.name for difference in self.differences)
        }

    def _means(
        self, parts: Mapping[tuple[Names, str], Sequence[Evidence | None]]
    ) -> dict[tuple[Names, str], tuple[Evidence, bool]]:
        known = {place: made for place, each in parts.items() if (made := self._mean_evidence(each)) is not None}
        marks = told_apart(list(known.values()))
        return {place: (made, mark) for (place, made), mark in zip(known.items(), marks, strict=True)}

    @staticmethod
    def _mean_evidence(parts: Sequence[Evidence | None]) -> Evidence | None:
        """Of the mean over streams; None where one of them has no interval over images."""
        known = [part for part in parts if part is not None]
        values = [part.resampled for part in known if part.resampled is not None]
        if not values or len(values) < len(parts):
            return None
        seeds = known[0].seeds
        if any(part.seeds != seeds for part in known):
            # Streams with different seeds have no rows in common: the means over the seeds of each are averaged.
            seeds, values = (), [np.atleast_2d(each).mean(axis=0) for each in values]
        resampled: Values = np.mean(values, axis=0)
        # Streams may share images: at least so many have changed, and so many are different.
        return of_resampled(resampled, max(part.changed for part in known), max(part.images for part in known), seeds)

    def to_better(self, row: Names, column: Names) -> float | None:
        """The headline minus that of the better of the frozen row and ROSITA on this stream; None if a run was on other images."""
        own = self.figure(row, column, self.headline)
        rows = [
            row if self._is_reference(m, row, column) else self.reference_row(m, row, column) for m in (FROZEN, RIVAL)
        ]
        found = [None if each is None else self._figures[each, column, self.headline, ""].mean for each in rows]
        known = [mean for mean in found if mean is not None]
        if own is None or own.mean is None or len(known) < 2:
            return None
        ours, others = self._places[row, column], [self._places[each, column] for each in rows if each is not None]
        if any(ours.on_other_stream(theirs, seed) for theirs in others for seed in ours.results):
            return None
        return own.mean - (min if lower_is_better(self.headline) else max)(known)

    @cached_property
    def other_streams(self) -> int:
        """The number of runs that were on another stream than the frozen row or ROSITA in the same column."""
        found = set()
        for (row, column), place in self._places.items():
            for method in (FROZEN, RIVAL):
                against = self.reference_row(method, row, column)
                if against is not None:
                    theirs = self._places[against, column]
                    found |= {(row, column, seed) for seed in place.results if place.on_other_stream(theirs, seed)}
        return len(found)

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
    def _references(self) -> dict[str, dict[tuple[Names, str], Names]]:
        """The rows that others are measured against, by method, column and stream."""
        found: dict[str, dict[tuple[Names, str], Names]] = {FROZEN: {}, RIVAL: {}}
        for plain in (True, False):
            for (row, column), place in self._places.items():
                method = place.cells[0].spec.method
                # The frozen classifier has no options to speak of; a changed ROSITA is not ROSITA.
                if method in found and (place.plain if plain else method == FROZEN):
                    found[method].setdefault((column, place.stream), row)
        return found

    def _is_reference(self, method: str, row: Names, column: Names) -> bool:
        """Whether these are the runs that others in the column are measured against, in this row or shown once more."""
        place = self._places.get((row, column))
        if place is None or place.cells[0].spec.method != method:
            return False
        chosen = self._references[method].get((column, place.stream))
        return chosen is not None and self._places[chosen, column].request == place.request

    def _grouped_columns(self, axes: int) -> dict[str, list[Names]]:
        """The columns by the groups of their entries on the first so many column axes; nothing where there are no groups."""
        by_name = {axis.name: {entry.name: entry.group for entry in axis.entries} for axis in self.suite.axes}
        found: dict[str, list[Names]] = {}
        for column in self.columns:
            named = list(zip(self.suite.columns, column, strict=True))[:axes]
            found.setdefault(", ".join(filter(None, (by_name[axis][name] for axis, name in named))), []).append(column)
        return found if any(found) else {}

    def _ordered_rows(self) -> list[Names]:
        """As in the suite, but in each block of rows the frozen one first."""
        rows = list(dict.fromkeys(row for row, _ in self._places))
        blocks = list(dict.fromkeys(row[:-1] for row in rows))
        return sorted(rows, key=lambda row: (blocks.index(row[:-1]), not self.is_frozen(row)))

    def _values(self, place: Place, metric: str, part: str) -> dict[int, float]:
        if metric == "hm_std":
            # Of all seeds together: one number, filed under the first seed.
            figures = list(self._values(place, "hm", part).values())
            return {0: statistics.stdev(figures)} if len(figures) > 1 else {}
        if metric == "hm_worst_tenth":
            worst = worst_tenth(list(self._values(place, "hm", part).values()))
            return {} if worst is None else {0: worst}
        read = {seed: self._value(place, seed, metric, part) for seed in place.results}
        return {seed: value for seed, value in read.items() if value is not None}

    def _value(self, place: Place, seed: int, metric: str, part: str) -> float | None:
        """The figure of one run: from its result file, or, for measures that the file does not have, from its records."""
        result = place.results[seed]
        # A plug-in cannot take the name of a metric that ships.
        if metric not in MEASURES and metric != "regret" and (metric in METRICS or metric in COST):
            return metric_value(result, metric, self.fpr95, part)
        if part:
            return None
        if metric in result.measures:
            return result.measures[metric]
        columns = self._columns(result)
        if columns is None:
            return None
        if metric != "regret":
            return find_measure(metric)(columns)
        cell = place.cells[0]
        against = self.frozen_row(cell.row, cell.column)
        frozen = self.results(against, cell.column).get(seed) if against is not None else None
        if frozen is None or frozen.stream.hash != result.stream.hash:
            return None
        base = self._columns(frozen)
        return None if base is None else regret(columns, base)

    def _columns(self, result: Result) -> RunColumns | None:
        """The records of a run; None where there are none, or they cannot be read."""
        if result.records is None:
            return None
        if result.records not in self._read_columns:
            try:
                read = read_records(self.collected.folder / result.records, MEASURED).measured
            except Error:
                read = None
            self._read_columns[result.records] = read
        return self._read_columns[result.records]

    def fill_measures(self) -> list[str]:
        """Fill in `regret` and all measures that ship or that a result file has; the names of those with a value anywhere."""
        of_results = (name for _, _, result in self.distinct for name in result.measures)
        found = []
        for metric in dict.fromkeys((*MEASURES, "regret", *of_results)):
            taken = metric in self.suite.metrics or (metric in METRICS and metric not in (*MEASURES, "regret"))
            # A measure of a package that is not installed here is left out.
            if taken or (metric != "regret" and not is_measure(metric)):
                continue
            self._fill(metric)
            if any(self._figures[row, column, metric, ""].mean is not None for row, column in self._places):
                found.append(metric)
        return found

    def _fill(self, metric: str, part: str = "") -> None:
        for (row, column), place in self._places.items():
            figure = _summed(list(self._values(place, metric, part).values()))
            if metric in ("hm_std", "hm_worst_tenth"):
                figure = replace(figure, seeds=len(place.results))
            if metric == "ms" and figure.mean is not None:
                figure = replace(figure, busy=any(result.busy for result in place.results.values()))
            if metric in self.suite.metrics:
                figure = self._beside_paper(figure, place, metric, part)
            self._figures[row, column, metric, part] = figure

    def _fill_difference(self, difference: Difference) -> None:
        metric = difference.metric
        for (row, column), place in self._places.items():
            figure = Figure(None, None, 0)
            against = self.reference_row(difference.against, row, column)
            if against is not None:
                other = self._places[against, column]
                differences = self._differences(place, other, metric)
                figure = _summed(list(differences.values()))
                found = evidence(self.paired, place.results, other.results, self._resampled(metric), differences)
                if found is not None:
                    self._evidence[row, column, difference.name] = found
                    figure = _with_evidence(figure, found, marked=False)
                if (metric, difference.against) == (self.headline, FROZEN):
                    figure = self._delta_beside_paper(figure, (row, column), (against, column))
            self._figures[row, column, difference.name, ""] = figure

    def _resampled(self, metric: str) -> str:
        """The name that a metric has in `ostta.evaluation.intervals`."""
        return FPR95[self.fpr95] if metric == "fpr95" else metric

    def _differences(self, ours: Place, theirs: Place, metric: str, part: str = "") -> dict[int, float]:
        """Seed by seed, without the seeds whose two runs were on different streams."""
        own, base = self._values(ours, metric, part), self._values(theirs, metric, part)
        return {seed: own[seed] - base[seed] for seed in own if seed in base and not ours.on_other_stream(theirs, seed)}

    def _beside_paper(self, figure: Figure, place: Place, metric: str, part: str) -> Figure:
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
            groups.setdefault((column, place.stream), []).append((row, column))
        yield from groups.values()

    def _mark(self, metric: str, part: str = "") -> None:
        """Mark differences and best figures of one metric, with Holm's correction over all comparisons of both kinds.

        One family, so that a star and a bold figure that rest on the same comparison never contradict each other.
        """
        family: dict[frozenset[frozenset[str]], Evidence] = {}
        stars: dict[tuple[Names, Names, str], frozenset[frozenset[str]]] = {}
        best: list[tuple[list[tuple[Names, Names]], list[frozenset[frozenset[str]]]]] = []
        for difference in self.differences if not part else ():
            for (row, column), place in self._places.items():
                found = self._evidence.get((row, column, difference.name))
                against = self.reference_row(difference.against, row, column)
                if difference.metric == metric and found is not None and against is not None:
                    pair = frozenset((place.keys, self._places[against, column].keys))
                    stars[row, column, difference.name] = pair
                    family[pair] = found
        for group in self._rivals():
            tops, others = self._best(group, metric, part)
            pairs = {frozenset(self._places[name].keys for name in (tops[0], other)): other for other in others}
            compared = {
                pair: family.get(pair) or self._apart((*tops[0], metric, part), (*other, metric, part))
                for pair, other in pairs.items()
            }
            known = {pair: found for pair, found in compared.items() if found is not None}
            family |= known
            if known and len(known) == len(pairs):
                best.append((tops, list(known)))
        marked = dict(zip(family, told_apart(list(family.values())), strict=True))
        for star, pair in stars.items():
            self._figures[*star, ""] = replace(self._figures[*star, ""], marked=marked[pair])
        for tops, pairs_of_top in best:
            if all(marked[pair] for pair in pairs_of_top):
                for name in tops:
                    self._figures[*name, metric, part] = replace(self._figures[*name, metric, part], best=True)

    def _best(
        self, group: list[tuple[Names, Names]], metric: str, part: str
    ) -> tuple[list[tuple[Names, Names]], list[tuple[Names, Names]]]:
        """The places with the best mean of a group, which share their runs, and all others; no others where nothing is best."""
        arrow = METRICS[metric][-1] if metric in self.suite.metrics else ""
        figures = {name: self._figures.get((*name, metric, part)) for name in group}
        means = {
            name: figure.mean for name, figure in figures.items() if figure is not None and figure.mean is not None
        }
        if arrow not in ("↑", "↓") or len(means) < 2:
            return group[:1], []
        top = max(means, key=means.__getitem__) if arrow == "↑" else min(means, key=means.__getitem__)
        # The same runs may be shown in several rows.
        tops = [name for name in means if self._places[name].keys == self._places[top].keys]
        return [top, *(name for name in tops if name != top)], [name for name in means if name not in tops]

    def _apart(self, one: tuple[Names, Names, str, str], other: tuple[Names, Names, str, str]) -> Evidence | None:
        """How sure the difference between two places of a column is."""
        (ours, theirs), (metric, part) = (self._places[name[0], name[1]] for name in (one, other)), one[2:]
        # The figure of one domain is not the one that is resampled.
        resampled = "" if part else self._resampled(metric)
        return evidence(
            self.paired, ours.results, theirs.results, resampled, self._differences(ours, theirs, metric, part)
        )


def _with_evidence(figure: Figure, found: Evidence | None, marked: bool) -> Figure:
    if found is None:
        return figure
    bounds = found.interval
    return replace(figure, low=bounds.low, high=bounds.high, over=found.over, images=found.images, marked=marked)


def _summed(values: list[float]) -> Figure:
    if not values:
        return Figure(None, None, 0)
    return Figure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def _printed(cell: Cell, metric: str, part: str) -> PaperValue | None:
    """The paper's figure: one without doubt where several tables have it."""
    values = find(**(cell.paper_part(part) if part else cell.paper), metric=metric)
    return next((value for value in values if not value.doubt), values[0] if values else None)


def figures_of(
    what: str,
    out: Path = Path("ostta-runs"),
    *,
    seeds: Sequence[int] | None = None,
    limit: int | None = None,
    only: Mapping[str, Collection[str]] | None = None,
    fpr95: str = "interpolated",
    given: Mapping[str, Any] | None = None,
) -> SuiteFigures:
    """The figures of the suite called `what`, from the results in `out`; or, where `what` is a folder, of whatever lies there.

    `given` as in `collect_results`.
    """
    require_known(fpr95, FPR95, "convention of FPR95")
    return SuiteFigures(collect(what, out, seeds, limit, only, given or {}), fpr95)
