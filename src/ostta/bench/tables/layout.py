"""Tables of results as text: the frozen row first, differences to it, a dash where a figure does not exist.

`rows` is the table of a few runs on one stream; `sheet` that of a whole suite, in blocks narrow enough to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..result import Result
from ..suite import METRICS
from .footnotes import notes
from .suite_figures import DELTA, FROZEN, Figure, Grid, Names

HEADINGS = ("method", "AUROC ↑", "FPR95 ↓", "Acc_D ↑", "Acc_U ↑", "HM ↑", "ΔHM", "updates", "ms/step")
DASH = "–"
# Figures side by side in one block, where not said otherwise.
WIDTH = 12
COUNTS = ("updates", "classes", "bank_features", "adapted_parameters", "added_parameters")
DIGITS = {"ms": 1, "euclidean": 4, "cosine": 4, "wasserstein": 4, "bank_mb": 3, "hm_std": 3, "gpu_memory_gb": 3}


@dataclass(frozen=True)
class Text:
    """One cell. `mark` is the number of a footnote, 0 for none; it belongs to the first word."""

    text: str
    bold: bool = False
    mark: int = 0


@dataclass(frozen=True)
class Block:
    """One table: groups of headed columns, and rows of as many texts as there are headings."""

    title: str
    stub: Names
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[tuple[Names, tuple[Text, ...]], ...]


@dataclass
class Sheet:
    """All tables of a suite, the doubts that marks refer to, and the sentences below."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def sheet(grid: Grid, width: int = WIDTH) -> Sheet:
    """Our figures, what they cost, the paper's beside them, and domain by domain where the suite has parts."""
    suite = grid.suite
    made = Sheet(f"{suite.title} ({suite.name}; {suite.what})")
    own = (
        (*suite.metrics, DELTA)
        if any(grid.is_frozen(row) for row in grid.rows) and len(grid.rows) > 1
        else suite.metrics
    )
    made.blocks += _blocks(grid, "", own, _own, width)
    printed = [
        metric for metric in own if any(_figure(grid, *place, metric).paper is not None for place in _places(grid))
    ]
    if printed:
        title = "The paper's figures, in brackets the gap to them"
        made.blocks += _blocks(grid, title, printed, partial(_paper, doubts=made.doubts), width)
    if suite.parts:
        made.blocks += _parts(grid, made.doubts)
    if grid.cost:
        made.blocks += _blocks(grid, "Updates, and milliseconds a step", grid.cost, _own, width)
    made.notes += notes(grid)
    return made


def heading(metric: str, headline: str) -> str:
    """The heading of a metric's column."""
    if metric == DELTA:
        return f"Δ {METRICS[headline].rstrip(' ↑↓')}"
    return METRICS.get(metric, metric)


def number(value: float | None, metric: str, *, signed: bool = False) -> str:
    """As tables print it: a dash for None."""
    if value is None:
        return DASH
    if metric in COUNTS and value == round(value):
        return f"{value:+,.0f}" if signed else f"{value:,.0f}"
    digits = 1 if metric in COUNTS else DIGITS.get(metric, 2)
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """One row a result, in the order of `HEADINGS`."""
    ordered = sorted(results, key=lambda result: result.spec.method != FROZEN)
    frozen = next((result for result in ordered if result.spec.method == FROZEN), None)
    return [_row(result, frozen) for result in ordered]


def _row(result: Result, frozen: Result | None) -> tuple[str, ...]:
    figures = result.metrics
    base = frozen.metrics.hm if frozen is not None else None
    delta = DASH if base is None or figures.hm is None or result is frozen else f"{figures.hm - base:+.2f}"
    return (
        result.spec.method,
        *(number(getattr(figures, name), name) for name in ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")),
        delta,
        str(result.updates),
        number(result.latency_ms.total.mean, "ms"),
    )


def _places(grid: Grid) -> Iterator[tuple[Names, Names]]:
    return ((row, column) for row in grid.rows for column in grid.columns)


def _figure(grid: Grid, row: Names, column: Names, metric: str, part: str = "") -> Figure:
    """An empty one where the suite leaves the cell out."""
    return grid.figure(row, column, metric, part) or Figure(None, None, 0)


def _blocks(
    grid: Grid, title: str, metrics: Sequence[str], text: Callable[[Figure, str, bool], Text], width: int
) -> Iterator[Block]:
    """As many columns of the suite side by side as fit."""

    def cell(row: Names, column: Names, metric: str) -> Text:
        """A difference is printed as the figures it is of, with its sign."""
        figure, delta = _figure(grid, row, column, metric), metric == DELTA
        return text(figure, grid.headline if delta else metric, delta)

    most = max(1, width // len(metrics))
    for start in range(0, len(grid.columns), most):
        columns = grid.columns[start : start + most]
        yield Block(
            title,
            grid.suite.rows,
            tuple(
                (" / ".join(column), tuple(heading(metric, grid.headline) for metric in metrics)) for column in columns
            ),
            tuple(
                (row, tuple(cell(row, column, metric) for column in columns for metric in metrics))
                for row in grid.rows
                if any(grid.figure(row, column, metrics[0]) for column in columns)
            ),
        )


def _parts(grid: Grid, doubts: list[str]) -> Iterator[Block]:
    """One block a column of the suite that has results: the domains side by side; then the same of the paper."""
    metric, parts = grid.headline, grid.suite.parts
    name = METRICS[metric].rstrip(" ↑↓")
    for title, text in (
        (f"{name}, domain by domain", _own),
        (f"The paper's {name}, domain by domain, in brackets the gap to it", partial(_paper, doubts=doubts)),
    ):
        for column in grid.columns:
            found = {
                row: [_figure(grid, row, column, metric, part) for part in parts]
                for row in grid.rows
                if grid.figure(row, column, metric)
            }
            if all(figure.mean is None for figures in found.values() for figure in figures):
                continue
            block = Block(
                title,
                grid.suite.rows,
                ((" / ".join(column), parts),),
                tuple(
                    (row, tuple(text(figure, metric, False) for figure in figures)) for row, figures in found.items()
                ),
            )
            if text is _own or any(cell.text != DASH for _, cells in block.rows for cell in cells):
                yield block


def _own(figure: Figure, metric: str, signed: bool) -> Text:
    text = number(figure.mean, metric, signed=signed)
    return Text(text if figure.std is None else f"{text} ± {number(figure.std, metric)}", bold=figure.best)


def _paper(figure: Figure, metric: str, signed: bool, doubts: list[str]) -> Text:
    if figure.paper is None:
        return Text(DASH)
    if figure.doubt and figure.doubt not in doubts:
        doubts.append(figure.doubt)
    mark = doubts.index(figure.doubt) + 1 if figure.doubt else 0
    paper, gap = number(figure.paper, metric, signed=signed), number(figure.gap, metric, signed=True)
    return Text(f"{paper} ({gap})", mark=mark)
