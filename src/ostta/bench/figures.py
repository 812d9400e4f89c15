"""Figures of a suite: means over seeds, differences to the frozen row, the best rows, and the gap to the paper."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..config.registry import require_known
from ..core.types import Error
from ..evaluation.measures import MEASURES, is_measure, worst_tenth
from ..evaluation.metrics import FPR95
from .collected import Names, Place, Position, SuiteResults, collect_results, folder_results, grouped, is_folder
from .paper.values import printed, why_not_comparable
from .records import Evidence, Over, PairedDifferences, RecordedMeasures, are_significant, evidence_of_resamples
from .result import METRICS, Result, lower_is_better, metric_value
from .spec import run_key
from .suite import load_suite

FROZEN, RIVAL = "zero_shot", "rosita"


# The difference of the headline to the frozen row.
DELTA = "delta"


Key = TypeVar("Key")
# The keys of the runs at two places.
_RunPair = frozenset[frozenset[str]]


# Shown beside the metrics of every suite.
COST = ("updates", "ms")


@dataclass(frozen=True)
class Figure:
    """One figure. `mean` is None if there is none; `std` is the standard deviation over `seeds` runs, None for one run.

    low, high: the paired 95 % interval of a difference, or None. over: what was sampled for the interval. images:
    number of different images of the interval. marked: the interval excludes zero, also after Holm's correction for all
    comparisons of the metric. best: significantly better than every other row of the same column, backbone and stream,
    in the same family of comparisons. paper: the paper's figure, with its `doubt`. gap: our figure minus the paper's;
    if there is none, `not_comparable` gives the reason.
    """

    mean: float | None
    std: float | None
    seeds: int
    best: bool = False
    paper: float | None = None
    doubt: str = ""
    gap: float | None = None
    not_comparable: str = ""
    low: float | None = None
    high: float | None = None
    over: Over | None = None
    images: int = 0
    marked: bool = False
    # At least one of the times was measured on a busy machine.
    busy: bool = False


NO_FIGURE = Figure(None, None, 0)


@dataclass(frozen=True)
class Difference:
    """The difference of a metric to the frozen row, or to published ROSITA, on the same stream."""

    metric: str
    against: str

    @property
    def name(self) -> str:
        return f"{DELTA}_{self.metric}" + ("" if self.against == FROZEN else f"_to_{self.against}")


class SuiteFigures:
    """The figures of a suite by row, column and metric, and by part for domains that the suite shows separately.

    The metrics are those of the suite, `COST`, and the names of `differences` to the frozen row and to ROSITA on the
    same backbone and stream, seed by seed; `DELTA` is the difference of the headline to the frozen row. If a column has
    several rows of the frozen classifier, the row with the published settings is the frozen row. `groups`: columns by
    the groups of the suite.
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
        self._measures = RecordedMeasures(collected.folder)
        self._of_groups: dict[str, dict[tuple[Names, str], Figure]] = {}
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
        """Return a figure; None if the suite has no such cell."""
        return self._figures.get((row, column, f"{DELTA}_{self.headline}" if metric == DELTA else metric, part))

    def mean(self, row: Names, column: Names, metric: str = "", part: str = "") -> float | None:
        """Return the mean of a figure (default: the headline); None if there is none."""
        figure = self.figure(row, column, metric or self.headline, part)
        return None if figure is None else figure.mean

    def all_of(self, *metrics: str) -> Iterator[Figure]:
        """Yield the figures of these metrics at all places."""
        for place in itertools.product(self.rows, self.columns, metrics):
            if (figure := self.figure(*place)) is not None:
                yield figure

    def is_frozen(self, row: Names) -> bool:
        return any(self._is_reference(FROZEN, *name) for name in self._places if name[0] == row)

    def results(self, row: Names, column: Names) -> dict[int, Result]:
        """Return the results of a place by seed."""
        place = self._places.get((row, column))
        return {} if place is None else place.results

    def frozen_row(self, row: Names, column: Names) -> Names | None:
        """Return the frozen row for this place; None if there is none, or if this row is one."""
        return self.reference_row(FROZEN, row, column)

    def reference_row(self, method: str, row: Names, column: Names) -> Names | None:
        """Return the row of `method` (the frozen classifier or ROSITA) for this place, as `frozen_row`."""
        place = self._places.get((row, column))
        if place is None or self._is_reference(method, row, column):
            return None
        return self._references[method].get((column, place.stream))

    @property
    def shown_differences(self) -> list[Difference]:
        """Differences that tables show: those to ROSITA only if there are intervals."""
        if len(self.rows) < 2:
            return []
        to_rival = self.paired and any(self._references[RIVAL].values())
        frozen = any(self.is_frozen(row) for row in self.rows)
        return [each for each in self.differences if (frozen if each.against == FROZEN else to_rival)]

    @property
    def sections(self) -> dict[str, list[Names]]:
        """Columns that are shown in one table: those with the same groups on all column axes but the last."""
        return self._grouped_columns(max(0, len(self.suite.columns) - 1)) or {"": self.columns}

    def group_figure(self, row: Names, group: str, metric: str) -> Figure:
        """Return the mean over the columns of a group; an empty figure if one of them is missing."""
        if metric not in self._of_groups:
            places = itertools.product(self.rows, self.groups)
            self._of_groups[metric] = self.means_over({(r, g): (r, self.groups[g]) for r, g in places}, metric)
        return self._of_groups[metric][row, group]

    def means_over(self, places: Mapping[Key, tuple[Names, Sequence[Names]]], metric: str) -> dict[Key, Figure]:
        """Return the mean of a row over some columns, for each of `places`; one Holm family for all means."""
        means, known = {}, dict[Key, Evidence]()
        for key, (row, columns) in places.items():
            found = [figure for column in columns if (figure := self.figure(row, column, metric)) is not None]
            values = [figure.mean for figure in found if figure.mean is not None]
            whole = 0 < len(values) == len(columns)
            seeds = min((figure.seeds for figure in found), default=0)
            means[key] = Figure(statistics.fmean(values), None, seeds) if whole else NO_FIGURE
            pooled = self._mean_evidence([self._evidence.get((row, column, metric)) for column in columns])
            if pooled is not None:
                known[key] = pooled
        for (key, pooled), marked in zip(known.items(), are_significant(list(known.values())), strict=True):
            means[key] = _with_evidence(means[key], pooled, marked)
        return means

    @staticmethod
    def _mean_evidence(parts: Sequence[Evidence | None]) -> Evidence | None:
        """Return the evidence of a mean over streams; None if a stream has no interval over images."""
        known = [part for part in parts if part is not None]
        values = [part.resampled for part in known if part.resampled is not None]
        if not values or len(values) < len(parts):
            return None
        seeds = known[0].seeds
        if any(part.seeds != seeds for part in known):
            # Streams with different seeds are averaged by their means over seeds.
            seeds, values = (), [np.atleast_2d(each).mean(axis=0) for each in values]
        # Lower bounds, because streams may share images.
        changed, images = (max(getattr(part, name) for part in known) for name in ("changed", "images"))
        return evidence_of_resamples(np.mean(values, axis=0), changed, images, seeds)

    def to_better(self, row: Names, column: Names) -> float | None:
        """Return the headline minus the better of frozen row and ROSITA; None if a run was on other images."""
        own = self.mean(row, column)
        rows = [
            row if self._is_reference(m, row, column) else self.reference_row(m, row, column) for m in (FROZEN, RIVAL)
        ]
        known = {each: mean for each in rows if each is not None and (mean := self.mean(each, column)) is not None}
        if own is None or len(known) < 2:
            return None
        ours = self._places[row, column]
        if any(ours.on_other_stream(self._places[each, column], seed) for each in known for seed in ours.results):
            return None
        return own - (min if lower_is_better(self.headline) else max)(known.values())

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
        """All results, each with the first place that shows it."""
        seen: dict[str, tuple[Names, Names, Result]] = {}
        for row in self.rows:
            for column in self.columns:
                for result in self.results(row, column).values():
                    seen.setdefault(run_key(result.spec), (row, column, result))
        return list(seen.values())

    @cached_property
    def _references(self) -> dict[str, dict[tuple[Names, str], Names]]:
        """The rows that others are compared with, by method, column and stream."""
        found: dict[str, dict[tuple[Names, str], Names]] = {FROZEN: {}, RIVAL: {}}
        for plain in (True, False):
            for (row, column), place in self._places.items():
                method = place.cells[0].spec.method
                # ROSITA with other settings is no reference; the frozen classifier is one with any settings.
                if method in found and (place.plain if plain else method == FROZEN):
                    found[method].setdefault((column, place.stream), row)
        return found

    def _is_reference(self, method: str, row: Names, column: Names) -> bool:
        """Return whether the place shows the runs that others in the column are compared with."""
        place = self._places.get((row, column))
        if place is None or place.cells[0].spec.method != method:
            return False
        chosen = self._references[method].get((column, place.stream))
        return chosen is not None and self._places[chosen, column].request == place.request

    def _grouped_columns(self, axes: int) -> dict[str, list[Names]]:
        """Return the columns by the groups on the first `axes` column axes; empty without groups."""
        by_name = {axis.name: {entry.name: entry.group for entry in axis.entries} for axis in self.suite.axes}
        found: dict[str, list[Names]] = {}
        for column in self.columns:
            named = list(zip(self.suite.columns, column, strict=True))[:axes]
            found.setdefault(", ".join(filter(None, (by_name[axis][name] for axis, name in named))), []).append(column)
        return found if any(found) else {}

    def _ordered_rows(self) -> list[Names]:
        """Return the rows in the order of the suite, with the frozen row first in each block."""
        rows = list(dict.fromkeys(row for row, _ in self._places))
        blocks = list(dict.fromkeys(row[:-1] for row in rows))
        return sorted(rows, key=lambda row: (blocks.index(row[:-1]), not self.is_frozen(row)))

    def _values(self, place: Place, metric: str, part: str) -> dict[int, float]:
        if metric == "hm_std":
            # One number for all seeds, stored under the first seed.
            figures = list(self._values(place, "hm", part).values())
            return {0: statistics.stdev(figures)} if len(figures) > 1 else {}
        if metric == "hm_worst_tenth":
            worst = worst_tenth(list(self._values(place, "hm", part).values()))
            return {} if worst is None else {0: worst}
        read = {seed: self._value(place, seed, metric, part) for seed in place.results}
        return {seed: value for seed, value in read.items() if value is not None}

    def _value(self, place: Place, seed: int, metric: str, part: str) -> float | None:
        """Return the figure of one run, from its result file, or from its records for other measures."""
        result = place.results[seed]
        # A plug-in cannot replace a built-in metric.
        if metric not in MEASURES and metric != "regret" and (metric in METRICS or metric in COST):
            return metric_value(result, metric, self.fpr95, part)
        cell = place.cells[0]
        against = self.frozen_row(cell.row, cell.column)
        frozen = None if against is None else self.results(against, cell.column).get(seed)
        return None if part else self._measures.value(result, metric, frozen)

    def fill_measures(self) -> list[str]:
        """Compute all further measures, and return the names of those with a value."""
        of_results = (name for _, _, result in self.distinct for name in result.measures)
        found = []
        for metric in dict.fromkeys((*MEASURES, "regret", *of_results)):
            taken = metric in self.suite.metrics or (metric in METRICS and metric not in (*MEASURES, "regret"))
            # Measures of packages that are not installed are left out.
            if taken or (metric != "regret" and not is_measure(metric)):
                continue
            self._fill(metric)
            if any(figure.mean is not None for figure in self.all_of(metric)):
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
            figure = NO_FIGURE
            against = self.reference_row(difference.against, row, column)
            if against is not None:
                other = self._places[against, column]
                differences = self._differences(place, other, metric)
                figure = _summed(list(differences.values()))
                found = self.paired.evidence(place.results, other.results, self._resampled(metric), differences)
                if found is not None:
                    self._evidence[row, column, difference.name] = found
                    figure = _with_evidence(figure, found)
                if (metric, difference.against) == (self.headline, FROZEN):
                    figure = self._delta_beside_paper(figure, (row, column), (against, column))
            self._figures[row, column, difference.name, ""] = figure

    def _resampled(self, metric: str) -> str:
        """Return the name of a metric in `ostta.evaluation.intervals`."""
        return FPR95[self.fpr95] if metric == "fpr95" else metric

    def _differences(self, ours: Place, theirs: Place, metric: str, part: str = "") -> dict[int, float]:
        """Return the differences by seed, without seeds whose two runs were on different streams."""
        own, base = self._values(ours, metric, part), self._values(theirs, metric, part)
        return {seed: own[seed] - base[seed] for seed in own if seed in base and not ours.on_other_stream(theirs, seed)}

    def _beside_paper(self, figure: Figure, place: Place, metric: str, part: str) -> Figure:
        cell = place.cells[0]
        if not cell.paper["table"]:
            return figure
        value = printed(cell.paper_part(part) if part else cell.paper, metric)
        if value is None:
            return figure
        reasons = (
            why_not_comparable(result, cell.paper, metric, shortened=place.shortened, fpr95=self.fpr95)
            for result in place.results.values()
        )
        apart = next((reason for reason in reasons if reason), "a doubtful figure" if value.doubt else "")
        return _beside(figure, value.value, value.doubt, apart)

    def _delta_beside_paper(self, figure: Figure, own: Position, frozen: Position) -> Figure:
        one, other = (self._figures[*place, self.headline, ""] for place in (own, frozen))
        if one.paper is None or other.paper is None:
            return figure
        doubt = "; ".join(dict.fromkeys(part.doubt for part in (one, other) if part.doubt))
        return _beside(figure, one.paper - other.paper, doubt, one.not_comparable or other.not_comparable)

    def _mark(self, metric: str, part: str = "") -> None:
        """Mark differences and best figures of one metric, with one Holm correction over all comparisons of both kinds.

        Stars and bold figures are one family, so that two marks from the same comparison never contradict each other.
        """
        family: dict[_RunPair, Evidence] = {}
        stars: dict[tuple[Names, Names, str], _RunPair] = {}
        best: list[tuple[list[Position], list[_RunPair]]] = []
        for difference in self.differences if not part else ():
            for row, column in self._places:
                found = self._evidence.get((row, column, difference.name))
                against = self.reference_row(difference.against, row, column)
                if difference.metric == metric and found is not None and against is not None:
                    pair = self._run_pair((row, column), (against, column))
                    stars[row, column, difference.name] = pair
                    family[pair] = found
        for group in self._compared_places():
            tops, others = self._best(group, metric, part)
            pairs = {self._run_pair(tops[0], other): other for other in others}
            compared = {
                pair: family.get(pair) or self._compare(tops[0], other, metric, part) for pair, other in pairs.items()
            }
            known = {pair: found for pair, found in compared.items() if found is not None}
            family |= known
            if known and len(known) == len(pairs):
                best.append((tops, list(known)))
        marked = dict(zip(family, are_significant(list(family.values())), strict=True))
        for star, pair in stars.items():
            self._figures[*star, ""] = replace(self._figures[*star, ""], marked=marked[pair])
        for tops, pairs_of_top in best:
            if all(marked[pair] for pair in pairs_of_top):
                for name in tops:
                    self._figures[*name, metric, part] = replace(self._figures[*name, metric, part], best=True)

    def _compared_places(self) -> Collection[list[Position]]:
        """Return the places that are compared with each other: one column, one backbone, one stream."""
        groups: dict[tuple[Names, str], list[Position]] = {}
        for (row, column), place in self._places.items():
            groups.setdefault((column, place.stream), []).append((row, column))
        return groups.values()

    def _run_pair(self, one: Position, other: Position) -> _RunPair:
        return frozenset((self._places[one].keys, self._places[other].keys))

    def _best(self, group: list[Position], metric: str, part: str) -> tuple[list[Position], list[Position]]:
        """Return the places with the best mean, which share their runs, and the others; no others if none is best."""
        means = {name: mean for name in group if (mean := self.mean(*name, metric, part)) is not None}
        has_best = metric in self.suite.metrics and METRICS[metric].endswith(("↑", "↓"))
        if not has_best or len(means) < 2:
            return group[:1], []
        top = (min if lower_is_better(metric) else max)(means, key=means.__getitem__)
        # The same runs may be shown in several rows.
        tops = [name for name in means if self._places[name].keys == self._places[top].keys]
        return tops, [name for name in means if name not in tops]

    def _compare(self, one: Position, other: Position, metric: str, part: str) -> Evidence | None:
        """Return the evidence of the difference between two places of a column."""
        ours, theirs = self._places[one], self._places[other]
        # Figures of one domain are not resampled.
        resampled = "" if part else self._resampled(metric)
        differences = self._differences(ours, theirs, metric, part)
        return self.paired.evidence(ours.results, theirs.results, resampled, differences)


def _with_evidence(figure: Figure, evidence: Evidence, marked: bool = False) -> Figure:
    low, high = evidence.interval.low, evidence.interval.high
    return replace(figure, low=low, high=high, over=evidence.over, images=evidence.images, marked=marked)


def _beside(figure: Figure, paper: float, doubt: str, apart: str) -> Figure:
    """Return the figure beside that of the paper, with the gap unless `apart` says why there is none."""
    figure = replace(figure, paper=paper, doubt=doubt)
    if figure.mean is None:
        return figure
    return replace(figure, not_comparable=apart, gap=None if apart else figure.mean - paper)


def _summed(values: list[float]) -> Figure:
    if not values:
        return NO_FIGURE
    return Figure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


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
    """Return the figures of the suite `what` from the results in `out`, or of the folder `what`.

    `given` as in `collect_results`.
    """
    require_known(fpr95, FPR95, "convention of FPR95")
    if not is_folder(what):
        return SuiteFigures(collect_results(load_suite(what), out, seeds, limit, only, given), fpr95)
    for_suites = [*(given or ()), *(["limit"] if limit is not None else [])]
    if for_suites:
        raise Error(
            f"--{for_suites[0]} is for suites, and {what} is a folder: its runs are shown as they were made.",
            code="option-not-for-folders",
        )
    return SuiteFigures(folder_results(Path(what), seeds, only), fpr95)
