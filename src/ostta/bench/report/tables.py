"""The tables of a suite as parts of a page: one stream a table, the headline figure first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...pages import Cell, Part, Row, Section, Table
from ..tables import layout
from ..tables.layout import Block, Sheet
from ..tables.suite_figures import SuiteFigures


def stream_tables(figures: SuiteFigures, made: Sheet) -> Iterator[Section]:
    """A section a stream, with what the runs cost in the same table. Streams without any result are left out."""
    own = [block for block in made.blocks if block.kind == "own"]
    costs: list[Block | None] = [block for block in made.blocks if block.kind == "cost"]
    first = _headline(figures)
    for block, cost in zip(own, costs or [None] * len(own), strict=True):
        whole = _ordered(block if cost is None else _beside(block, cost), first)
        if _has_figures(whole):
            name = " / ".join(filter(None, (block.title, block.groups[0][0])))
            yield Section(name or "This stream", [table(whole)])


def tables(figures: SuiteFigures, blocks: Sequence[Block]) -> list[Part]:
    """Each block that has a figure, as a table under its own title."""
    first = _headline(figures)
    return [table(_ordered(block, first), block.groups[0][0]) for block in blocks if _has_figures(block)]


def table(block: Block, title: str = "") -> Table:
    """A block with one group of columns."""
    rows, before = list[Row](), tuple[str, ...]()
    several = len({names[:-1] for names, _ in block.rows}) > 1
    for names, texts in block.rows:
        above = " / ".join(names[:-1]) if several and names[:-1] != before else ""
        before = names[:-1]
        rows.append(Row(names[-1], [cell(text) for text in texts], method=names[-1], above=above))
    headings = [heading for _, group in block.groups for heading in group]
    return Table([block.stub[-1], *headings], rows, title)


def cell(text: layout.Text) -> Cell:
    """The figure, and what is said about it in smaller letters below; a star belongs to the figure, and no gap needs no brackets."""
    figure, _, rest = text.text.removesuffix(f" ({layout.DASH})").partition(" ")
    star = "*" if rest.endswith("*") else ""
    return Cell(figure + star, rest.removesuffix("*"), text.bold, text.mark)


def _has_figures(block: Block) -> bool:
    return any(cell.text != layout.DASH for _, cells in block.rows for cell in cells)


def _headline(figures: SuiteFigures) -> list[str]:
    """The headings that come first: the headline, and the differences of it."""
    names = [each.name for each in figures.shown_differences if each.metric == figures.headline]
    return [layout.heading(figures, name) for name in (figures.headline, *names)]


def _ordered(block: Block, first: Sequence[str]) -> Block:
    ((name, headings),) = block.groups
    order = sorted(
        range(len(headings)), key=lambda at: first.index(headings[at]) if headings[at] in first else len(first)
    )
    return replace(
        block,
        groups=((name, tuple(headings[at] for at in order)),),
        rows=tuple((names, tuple(cells[at] for at in order)) for names, cells in block.rows),
    )


def _beside(block: Block, other: Block) -> Block:
    """The columns of both."""
    more = dict(other.rows)
    return replace(
        block,
        groups=((block.groups[0][0], (*block.groups[0][1], *other.groups[0][1])),),
        rows=tuple((names, (*cells, *more[names])) for names, cells in block.rows),
    )
