"""Tables of results: the frozen row first, differences to it, a dash where a figure does not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from ..evaluation.measures import is_measure
from ..evaluation.metrics import mean
from .against_frozen import against_frozen, ranks_of
from .collected import Names
from .figures import FROZEN, Difference, Figure, SuiteFigures
from .footnotes import BOLD, footnotes
from .metric_values import METRICS, lower_is_better, metric_name, number
from .result import Result
from .spec import is_frozen, name_of
from .statistics import Ranks

# What a table is about: our figures, means over streams, the paper's figures, domains, windows of the stream, what runs cost.
Kind = Literal["own", "means", "paper", "parts", "windows", "cost"]


@dataclass(frozen=True)
class TableCell:
    """One figure of a table. It stays a number until a table is written.

    low, high: its interval. spread: its standard deviation. star: the interval excludes zero, also after Holm's correction. gap: our
    figure minus the paper's, in a cell with the paper's figure (`of_paper`). mark: number of a footnote, 0 for none. words: in place of a number.
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
    words: str = ""
    digits: int | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to show."""
        return self.value is not None or bool(self.words)

    @property
    def figure(self) -> str:
        """The figure alone, or a dash."""
        return self.words or self._number(self.value, self.signed)

    @property
    def details(self) -> str:
        """Interval, spread or gap."""
        if not self:
            return ""
        if self.of_paper:
            return f"({self._number(self.gap, True)})"
        if self.low is not None and self.high is not None:
            seeds = " over seeds" * self.over_seeds
            return f"[{self._number(self.low, True)}, {self._number(self.high, True)}{seeds}]"
        parts = [f"± {self._number(self.spread, False)}"] * (self.spread is not None) + ["(busy)"] * self.busy
        return " ".join(parts)

    @property
    def text(self) -> str:
        """Figure and details, with a star."""
        return " ".join(filter(None, (self.figure, self.details))) + "*" * self.star

    def _number(self, value: float | None, signed: bool) -> str:
        if self.digits is not None and value is not None:
            return f"{value:{'+' if signed else ''},.{self.digits}f}"
        return number(value, self.metric, signed=signed)


@dataclass(frozen=True)
class Block:
    """One table: groups of headed columns, and rows of as many texts as there are headings. `kind` is what it is about."""

    title: str
    stub: Names
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[tuple[Names, tuple[TableCell, ...]], ...]
    kind: Kind = "own"


HEADINGS = ("method", "AUROC ↑", "FPR95 ↓", "Acc_D ↑", "Acc_U ↑", "HM ↑", "ΔHM", "updates", "ms/step")


# Figures side by side in one block, where not said otherwise.
WIDTH = 12


@dataclass
class Sheet:
    """All tables of a suite, the doubts that marks refer to, and the sentences below."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    footnotes: list[str] = field(default_factory=list)


def sheet(figures: SuiteFigures, width: int = WIDTH) -> Sheet:
    """Our figures, what they cost, the paper's beside them, and domain by domain where the suite has parts."""
    suite = figures.suite
    made = Sheet(suite.called)
    own = (*suite.metrics, *(difference.name for difference in figures.shown_differences))
    made.blocks += _blocks(figures, "", own, _own, width)
    made.blocks += _of_kind("means", _means(figures, width))
    made.blocks += _of_kind("means", rank_blocks(figures))
    printed = [
        metric
        for metric in own
        if any(_figure(figures, *place, metric).paper is not None for place in _places(figures))
    ]
    if printed:
        title = "The paper's figures, in brackets the gap to them"
        paper = _blocks(figures, title, printed, partial(_paper, doubts=made.doubts), width)
        made.blocks += _of_kind("paper", paper)
    if suite.parts:
        made.blocks += _parts(figures, made.doubts)
    if suite.windows:
        made.blocks += _of_kind("windows", _windows(figures, width))
    if figures.cost:
        cost = _blocks(figures, "Updates, and milliseconds a step", figures.cost, _own, width)
        made.blocks += _of_kind("cost", cost)
    made.footnotes += footnotes(figures)
    return made


def compact_sheet(figures: SuiteFigures, width: int = WIDTH) -> Sheet:
    """The means of the headline alone, with the streams side by side."""
    metric, made = figures.headline, Sheet(figures.suite.called)
    for name, section in figures.sections.items():
        for start in range(0, len(section), width):
            columns = section[start : start + width]
            found = {row: [_figure(figures, row, column, metric) for column in columns] for row in figures.rows}
            made.blocks.append(
                Block(
                    name,
                    figures.suite.rows,
                    ((METRICS[metric], tuple(" / ".join(column) for column in columns)),),
                    tuple(
                        (row, tuple(TableCell(each.mean, metric, bold=each.best) for each in line))
                        for row, line in found.items()
                        if any(each.mean is not None for each in line)
                    ),
                )
            )
    made.footnotes += [figures.collected.missing] if figures.collected.missing else []
    made.footnotes += (
        [BOLD] if any(cell.bold for block in made.blocks for _, line in block.rows for cell in line) else []
    )
    return made


def measure_blocks(figures: SuiteFigures) -> list[Block]:
    """The measures that the suite does not name and any run has, one block a stream: for pages."""
    found = figures.fill_measures()
    return list(_blocks(figures, "", found, _own, 1)) if found else []


def _of_kind(kind: Kind, blocks: Iterator[Block]) -> Iterator[Block]:
    return (replace(block, kind=kind) for block in blocks)


def heading(figures: SuiteFigures, metric: str) -> str:
    """The heading of a metric's column, or of a difference's."""
    difference = _difference(figures, metric)
    if difference is None:
        return METRICS[metric] if is_measure(metric) else METRICS.get(metric, metric)
    name = f"Δ {metric_name(difference.metric)}"
    return name if difference.against == FROZEN else f"{name} to {difference.against}"


def _difference(figures: SuiteFigures, name: str) -> Difference | None:
    return next((each for each in figures.differences if each.name == name), None)


def rows(results: Sequence[Result]) -> list[tuple[str, tuple[TableCell, ...]]]:
    """Return the name of each result and its cells, in the order of `HEADINGS`; the frozen result first."""
    ordered = sorted(results, key=lambda result: not is_frozen(result.spec))
    frozen = next((result for result in ordered if is_frozen(result.spec)), None)
    return [(name_of(result.spec), tuple(_row(result, frozen))) for result in ordered]


def _row(result: Result, frozen: Result | None) -> Iterator[TableCell]:
    metrics = result.metrics
    base = frozen.metrics.hm if frozen is not None and result is not frozen else None
    for name in ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm"):
        yield TableCell(getattr(metrics, name), name)
    yield TableCell(None if base is None or metrics.hm is None else metrics.hm - base, "hm", signed=True)
    yield TableCell(words=str(result.updates))
    yield TableCell(None if result.cached_features else result.latency_ms.total.mean, "ms", busy=result.busy)


def _places(figures: SuiteFigures) -> Iterator[tuple[Names, Names]]:
    return ((row, column) for row in figures.rows for column in figures.columns)


def _figure(figures: SuiteFigures, row: Names, column: Names, metric: str, part: str = "") -> Figure:
    """An empty one where the suite leaves the cell out."""
    return figures.figure(row, column, metric, part) or Figure(None, None, 0)


def _blocks(
    figures: SuiteFigures,
    title: str,
    metrics: Sequence[str],
    text: Callable[[Figure, str, bool], TableCell],
    width: int,
) -> Iterator[Block]:
    """As many columns of the suite side by side as fit."""

    def cell(row: Names, column: Names, metric: str) -> TableCell:
        """A difference is printed as the figures it is of, with its sign."""
        figure, difference = _figure(figures, row, column, metric), _difference(figures, metric)
        return text(figure, metric if difference is None else difference.metric, difference is not None)

    most = max(1, width // len(metrics))
    # Columns of another group, such as conditions that were set apart, have tables of their own.
    for name, section in figures.sections.items():
        for start in range(0, len(section), most):
            columns = section[start : start + most]
            yield Block(
                ": ".join(filter(None, (title, name))),
                figures.suite.rows,
                tuple(
                    (" / ".join(column), tuple(heading(figures, metric) for metric in metrics)) for column in columns
                ),
                tuple(
                    (row, tuple(cell(row, column, metric) for column in columns for metric in metrics))
                    for row in figures.rows
                    if any(figures.figure(row, column, metrics[0]) for column in columns)
                ),
            )


def _means(figures: SuiteFigures, width: int) -> Iterator[Block]:
    """The means over the columns of each group, with what stands and falls with the worst stream."""
    metrics = list(dict.fromkeys(difference.metric for difference in figures.differences))
    names = [*metrics, *(difference.name for difference in figures.shown_differences)]
    worst = "highest" if lower_is_better(figures.headline) else "lowest"
    beside = ("Δ better", worst) if len({each.against for each in figures.shown_differences}) > 1 else ()

    def cells(row: Names, group: str) -> Iterator[TableCell]:
        for name in names:
            difference = _difference(figures, name)
            metric = name if difference is None else difference.metric
            yield _own(figures.group_figure(row, group, name), metric, difference is not None)
        if beside:
            found = [figures.to_better(row, column) for column in figures.groups[group]]
            yield TableCell(mean(found), figures.headline, signed=True)
            known = [value for value in found if value is not None]
            extreme = (max if worst == "highest" else min)(known) if len(known) == len(found) else None
            yield TableCell(extreme, figures.headline, signed=True)

    groups = list(figures.groups)
    most = max(1, width // (len(names) + len(beside)))
    for start in range(0, len(groups), most):
        shown = groups[start : start + most]
        headings = (*(heading(figures, name) for name in names), *beside)
        lines = ((row, tuple(text for group in shown for text in cells(row, group))) for row in figures.rows)
        yield Block(
            "Means over streams",
            figures.suite.rows,
            tuple((f"{group or 'all others'} ({len(figures.groups[group])})", headings) for group in shown),
            tuple((row, texts) for row, texts in lines if any(texts)),
        )


def _windows(figures: SuiteFigures, width: int) -> Iterator[Block]:
    """Each row against the frozen one in windows of the stream: the worst, and how long it took to recover."""
    names = ("worst window", "its images", "recovered after")
    found = {place: against_frozen(figures, *place) for place in _places(figures)}

    def cells(row: Names, column: Names) -> tuple[TableCell, ...]:
        course = found[row, column]
        if course is None:
            return (TableCell(),) * len(names)
        worst = course.worst
        images = f"{worst.start:,}–{worst.start + figures.suite.windows:,}"
        after = "never" if course.recovered is None else f"{course.recovered:,}"
        value = TableCell(worst.value, signed=True, low=worst.low, high=worst.high, star=worst.below, digits=1)
        return value, TableCell(words=images), TableCell(words=after)

    most = max(1, width // len(names))
    for start in range(0, len(figures.columns), most):
        columns = figures.columns[start : start + most]
        yield Block(
            f"(C+1)-way accuracy less the frozen row's, in windows of {figures.suite.windows} images",
            figures.suite.rows,
            tuple((" / ".join(column), names) for column in columns),
            tuple(
                (row, tuple(text for column in columns for text in cells(row, column)))
                for row in figures.rows
                if any(found[row, column] for column in columns)
            ),
        )


def _parts(figures: SuiteFigures, doubts: list[str]) -> Iterator[Block]:
    """One block a column of the suite that has results: the domains side by side; then the same of the paper."""
    metric, parts = figures.headline, figures.suite.parts
    name = metric_name(metric)
    for title, text in (
        (f"{name}, domain by domain", _own),
        (f"The paper's {name}, domain by domain, in brackets the gap to it", partial(_paper, doubts=doubts)),
    ):
        for column in figures.columns:
            found = {
                row: [_figure(figures, row, column, metric, part) for part in parts]
                for row in figures.rows
                if figures.figure(row, column, metric)
            }
            if all(figure.mean is None for line in found.values() for figure in line):
                continue
            block = Block(
                title,
                figures.suite.rows,
                ((" / ".join(column), parts),),
                tuple((row, tuple(text(figure, metric, False) for figure in line)) for row, line in found.items()),
                "parts" if text is _own else "paper",
            )
            if text is _own or any(cell for _, cells in block.rows for cell in cells):
                yield block


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


def rank_blocks(figures: SuiteFigures) -> Iterator[Block]:
    """One table for each backbone with enough streams, the best row first."""
    for one in ranks_of(figures):
        if one.ranks is not None:
            name = metric_name(one.metric)
            lines = zip(one.ranks.methods, one.ranks.average, strict=True)
            yield Block(
                f"Average rank of {name}",
                figures.suite.rows,
                ((f"{one.backbone}, {one.ranks.streams} streams", ("rank ↓", "told apart from")),),
                tuple(
                    (one.rows[method], (TableCell(rank, digits=2), _apart(one.ranks, method))) for method, rank in lines
                ),
            )


def _apart(ranks: Ranks, method: str) -> TableCell:
    worse = sum(better == method for better, _ in ranks.apart)
    better = sum(other == method for _, other in ranks.apart)
    parts = [f"{worse} worse"] * bool(worse) + [f"{better} better"] * bool(better)
    return TableCell(words=", ".join(parts) or "none")
