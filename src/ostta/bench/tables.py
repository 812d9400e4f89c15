"""Tables of results. The frozen row comes first, and a dash stands for a figure that does not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ..evaluation.measures import is_measure
from ..evaluation.metrics import NAMES, mean
from .against_frozen import Ranks, against_frozen, ranks_of
from .collected import Names
from .figures import FROZEN, NO_FIGURE, Difference, Figure, Key, SuiteFigures
from .footnotes import BOLD, footnotes
from .result import METRICS, Result, lower_is_better, metric_name, number
from .spec import is_frozen, name_of

# Kinds of tables: our figures, means over streams, the paper's figures, domains, windows of the stream, costs.
Kind = Literal["own", "means", "paper", "parts", "windows", "cost"]


@dataclass(frozen=True)
class TableCell:
    """One figure of a table. It stays a number until the table is written.

    low, high: its interval. spread: its standard deviation. star: the interval excludes zero, also after Holm's
    correction. of_paper: the figure is the paper's; gap: our figure minus it. mark: number of a footnote, 0 for none.
    words: text instead of a number.
    """

    value: float | None = None
    metric: str = ""
    signed: bool = False
    low: float | None = None
    high: float | None = None
    over_seeds: bool = False
    spread: float | None = None
    star: bool = False
    bold: bool = False
    busy: bool = False
    of_paper: bool = False
    gap: float | None = None
    mark: int = 0
    words: str | None = None
    digits: int | None = None

    def __bool__(self) -> bool:
        """Return whether the cell shows anything."""
        return self.value is not None or bool(self.words)

    @property
    def figure(self) -> str:
        """The figure without details, or a dash."""
        return self._number(self.value, self.signed) if self.words is None else self.words

    @property
    def details(self) -> str:
        """Interval, spread or gap."""
        if not self:
            return ""
        if self.of_paper:
            return f"({self._number(self.gap, True)})"
        if self.low is not None and self.high is not None:
            seeds = " over seeds" if self.over_seeds else ""
            return f"[{self._number(self.low, True)}, {self._number(self.high, True)}{seeds}]"
        spread = "" if self.spread is None else f"± {self._number(self.spread, False)}"
        return " ".join(filter(None, (spread, "(busy)" if self.busy else "")))

    @property
    def text(self) -> str:
        """Figure and details, with a star."""
        return " ".join(filter(None, (self.figure, self.details))) + ("*" if self.star else "")

    def _number(self, value: float | None, signed: bool) -> str:
        if self.digits is not None and value is not None:
            return f"{value:{'+' if signed else ''},.{self.digits}f}"
        return number(value, self.metric, signed=signed)


Cells = tuple[TableCell, ...]
# The name above some columns, and the heading of each column.
Group = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Block:
    """One table: groups of columns, and rows of cells, one for each heading."""

    title: str
    stub: Names
    groups: tuple[Group, ...]
    rows: tuple[tuple[Names, Cells], ...]
    kind: Kind = "own"


HEADINGS = ("method", "AUROC ↑", "FPR95 ↓", "Acc_D ↑", "Acc_U ↑", "HM ↑", "ΔHM", "updates", "ms/step")


# Default number of figures side by side in one block.
WIDTH = 12


@dataclass
class Sheet:
    """All tables of a suite, the doubts that footnote marks refer to, and the sentences below the tables."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    footnotes: list[str] = field(default_factory=list)


def sheet(figures: SuiteFigures, width: int = WIDTH, *, page: bool = False) -> Sheet:
    """Return the tables of a suite: our figures, means, the paper's figures, domains, windows and costs.

    page: whether each column of the suite has a table of its own, with the headline first and the costs last.
    """
    suite, width = figures.suite, 1 if page else width
    order = partial(_headline_first, figures) if page else list[str]
    tables = Sheet(suite.heading)
    own = order([*suite.metrics, *(difference.name for difference in figures.shown_differences)])
    tables.blocks += _by_column(figures, "", [*own, *figures.cost] if page else own, _own, width, "own")
    tables.blocks += _means(figures, width, order)
    tables.blocks += _ranks(figures)
    printed = [metric for metric in own if any(each.paper is not None for each in figures.all_of(metric))]
    if printed:
        title = "The paper's figures, in brackets the gap to them"
        tables.blocks += _by_column(figures, title, printed, partial(_paper, doubts=tables.doubts), width, "paper")
    tables.blocks += _parts(figures, tables.doubts)
    if suite.windows:
        tables.blocks += _windows(figures, width)
    if figures.cost and not page:
        tables.blocks += _by_column(figures, "Updates, and milliseconds a step", figures.cost, _own, width, "cost")
    tables.footnotes += footnotes(figures)
    return tables


def compact_sheet(figures: SuiteFigures) -> Sheet:
    """Return one table with the means of the headline, one column a stream."""
    metric, tables = figures.headline, Sheet(figures.suite.heading)

    def cells(row: Names, columns: tuple[Names, ...]) -> Cells | None:
        found = [figures.figure(row, column, metric) or NO_FIGURE for column in columns]
        line = tuple(TableCell(figure.mean, metric, bold=figure.best) for figure in found)
        return line if any(line) else None

    for name, section in figures.sections.items():
        parts = [tuple(section[start : start + WIDTH]) for start in range(0, len(section), WIDTH)]
        groups = {columns: (METRICS[metric], tuple(" / ".join(column) for column in columns)) for columns in parts}
        tables.blocks += _blocks(figures, name, groups, cells, 1, "own")
    bold = any(cell.bold for block in tables.blocks for _, line in block.rows for cell in line)
    tables.footnotes += [note for note in (figures.collected.missing, BOLD if bold else "") if note]
    return tables


def measure_blocks(figures: SuiteFigures) -> list[Block]:
    """Return the measures that the suite does not name and that any run has, one block a stream."""
    found = figures.fill_measures()
    return list(_by_column(figures, "", found, _own, 1, "own")) if found else []


def heading(figures: SuiteFigures, metric: str) -> str:
    """Return the heading of the column of a metric or a difference."""
    difference = _difference(figures, metric)
    if difference is None:
        return METRICS[metric] if is_measure(metric) else METRICS.get(metric, metric)
    name = f"Δ {metric_name(difference.metric)}"
    return name if difference.against == FROZEN else f"{name} to {difference.against}"


def rows(results: Sequence[Result]) -> list[tuple[str, Cells]]:
    """Return the name of each result and its cells, in the order of `HEADINGS`; the frozen result first."""
    ordered = sorted(results, key=lambda result: not is_frozen(result.spec))
    frozen = next((result for result in ordered if is_frozen(result.spec)), None)
    return [(name_of(result.spec), tuple(_row(result, frozen))) for result in ordered]


def _row(result: Result, frozen: Result | None) -> Iterator[TableCell]:
    metrics = result.metrics
    base = frozen.metrics.hm if frozen is not None and result is not frozen else None
    for name in NAMES:
        yield TableCell(getattr(metrics, name), name)
    yield TableCell(None if base is None or metrics.hm is None else metrics.hm - base, "hm", signed=True)
    yield TableCell(words=str(result.updates))
    yield TableCell(None if result.cached_features else result.latency_ms.total.mean, "ms", busy=result.busy)


# --- blocks -----------------------------------------------------------------------------------------------------------
# Writes a figure of a metric, and whether it has a sign.
Write = Callable[[Figure, str, bool], TableCell]


def _blocks(
    figures: SuiteFigures,
    title: str,
    groups: Mapping[Key, Group],
    cells: Callable[[Names, Key], Cells | None],
    width: int,
    kind: Kind,
) -> Iterator[Block]:
    """Yield tables with as many groups of columns side by side as fit.

    `cells` returns the cells of a row in a group; None if it has none. A row without cells is left out.
    """
    keys = list(groups)
    most = max(1, width // max((len(headings) for _, headings in groups.values()), default=1))
    for start in range(0, len(keys), most):
        shown = keys[start : start + most]
        empty = {key: (TableCell(),) * len(groups[key][1]) for key in shown}
        lines = [(row, {key: found for key in shown if (found := cells(row, key)) is not None}) for row in figures.rows]
        yield Block(
            title,
            figures.suite.rows,
            tuple(groups[key] for key in shown),
            tuple((row, tuple(cell for key in shown for cell in (empty | line)[key])) for row, line in lines if line),
            kind,
        )


def _by_column(
    figures: SuiteFigures, title: str, metrics: Sequence[str], write: Write, width: int, kind: Kind
) -> Iterator[Block]:
    """Yield tables of metrics by the columns of the suite. Each section of columns has tables of its own."""
    headings = tuple(heading(figures, metric) for metric in metrics)

    def cells(row: Names, column: Names) -> Cells | None:
        found = [(metric, figures.figure(row, column, metric)) for metric in metrics]
        return tuple(_written(figures, figure, metric, write) for metric, figure in found if figure is not None) or None

    for name, section in figures.sections.items():
        groups = {column: (" / ".join(column), headings) for column in section}
        yield from _blocks(figures, ": ".join(filter(None, (title, name))), groups, cells, width, kind)


def _headline_first(figures: SuiteFigures, names: list[str]) -> list[str]:
    """Return the names with the headline and its differences first."""
    first = [figures.headline, *(each.name for each in figures.differences if each.metric == figures.headline)]
    return sorted(names, key=lambda name: first.index(name) if name in first else len(first))


def _means(figures: SuiteFigures, width: int, order: Callable[[list[str]], list[str]]) -> Iterator[Block]:
    """Yield tables of the means over the columns of each group, and of the worst stream."""
    metrics = list(dict.fromkeys(difference.metric for difference in figures.differences))
    names = order([*metrics, *(difference.name for difference in figures.shown_differences)])
    worst, extreme = ("highest", max) if lower_is_better(figures.headline) else ("lowest", min)
    beside = ("Δ better", worst) if len({each.against for each in figures.shown_differences}) > 1 else ()
    headings = (*(heading(figures, name) for name in names), *beside)

    def cells(row: Names, group: str) -> Cells | None:
        line = [_written(figures, figures.group_figure(row, group, name), name, _own) for name in names]
        if beside:
            found = [figures.to_better(row, column) for column in figures.groups[group]]
            known = [value for value in found if value is not None]
            values = (mean(found), extreme(known) if len(known) == len(found) else None)
            line += [TableCell(value, figures.headline, signed=True) for value in values]
        return tuple(line) if any(line) else None

    groups = {group: (f"{group or 'all others'} ({len(of)})", headings) for group, of in figures.groups.items()}
    yield from _blocks(figures, "Means over streams", groups, cells, width, "means")


def _windows(figures: SuiteFigures, width: int) -> Iterator[Block]:
    """Yield tables of the worst window against the frozen row, and of the images until recovery."""
    size = figures.suite.windows

    def cells(row: Names, column: Names) -> Cells | None:
        course = against_frozen(figures, row, column)
        if course is None:
            return None
        worst = course.worst
        images = f"{worst.start:,}–{worst.start + size:,}"
        after = "never" if course.recovered is None else f"{course.recovered:,}"
        value = TableCell(worst.value, signed=True, low=worst.low, high=worst.high, star=worst.below, digits=1)
        return value, TableCell(words=images), TableCell(words=after)

    title = f"(C+1)-way accuracy less the frozen row's, in windows of {size} images"
    names = ("worst window", "its images", "recovered after")
    groups = {column: (" / ".join(column), names) for column in figures.columns}
    yield from _blocks(figures, title, groups, cells, width, "windows")


def _parts(figures: SuiteFigures, doubts: list[str]) -> Iterator[Block]:
    """Yield the figures of the domains, one block a column with results, and then those of the paper."""
    metric, parts = figures.headline, figures.suite.parts
    name = metric_name(metric)
    of_paper = f"The paper's {name}, domain by domain, in brackets the gap to it"
    kinds: list[tuple[Kind, str, Write]] = [
        ("parts", f"{name}, domain by domain", _own),
        ("paper", of_paper, partial(_paper, doubts=doubts)),
    ]

    def cells(row: Names, column: Names, write: Write) -> Cells | None:
        found = (figures.figure(row, column, metric, part) for part in parts)
        return tuple(write(figure, metric, False) for figure in found if figure is not None) or None

    for kind, title, write in kinds:
        for column in figures.columns:
            if any(figures.mean(row, column, metric, part) is not None for row in figures.rows for part in parts):
                groups = {column: (" / ".join(column), parts)}
                (block,) = _blocks(figures, title, groups, partial(cells, write=write), 1, kind)
                if any(cell for _, line in block.rows for cell in line):
                    yield block


def _ranks(figures: SuiteFigures) -> Iterator[Block]:
    """Yield one table of ranks for each backbone with enough streams, the best row first."""
    for one in ranks_of(figures):
        if one.ranks is not None:
            lines = zip(one.ranks.methods, one.ranks.average, strict=True)
            yield Block(
                f"Average rank of {metric_name(one.metric)}",
                figures.suite.rows,
                ((f"{one.backbone}, {one.ranks.streams} streams", ("rank ↓", "told apart from")),),
                tuple(
                    (one.rows[method], (TableCell(rank, digits=2), _apart(one.ranks, method))) for method, rank in lines
                ),
                "means",
            )


def _apart(ranks: Ranks, method: str) -> TableCell:
    """Return how many methods are significantly worse and better than `method`."""
    worse = sum(one == method for one, _ in ranks.apart)
    better = sum(other == method for _, other in ranks.apart)
    counts = {"worse": worse, "better": better}
    return TableCell(words=", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none")


# --- cells ------------------------------------------------------------------------------------------------------------
def _difference(figures: SuiteFigures, name: str) -> Difference | None:
    return next((each for each in figures.differences if each.name == name), None)


def _written(figures: SuiteFigures, figure: Figure, name: str, write: Write) -> TableCell:
    """Write a figure. A difference is written like its metric, with a sign."""
    difference = _difference(figures, name)
    return write(figure, name if difference is None else difference.metric, difference is not None)


def _own(figure: Figure, metric: str, signed: bool) -> TableCell:
    interval = figure.low is not None and figure.high is not None
    return TableCell(
        figure.mean,
        metric,
        signed,
        low=figure.low,
        high=figure.high,
        over_seeds=figure.over == "seeds",
        spread=None if interval else figure.std,
        star=interval and figure.marked,
        bold=figure.best and not interval,
        busy=figure.busy,
    )


def _paper(figure: Figure, metric: str, signed: bool, doubts: list[str]) -> TableCell:
    if figure.paper is None:
        return TableCell()
    if figure.doubt and figure.doubt not in doubts:
        doubts.append(figure.doubt)
    mark = doubts.index(figure.doubt) + 1 if figure.doubt else 0
    return TableCell(figure.paper, metric, signed, of_paper=True, gap=figure.gap, mark=mark)
