"""Lists of things to choose from. What a person would copy, an id, is never split: not by a narrow window, and not in a pipe."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence

import typer


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """On a terminal a table if no word has to be split for it, else a paragraph for each row; elsewhere plain lines, one a row."""
    from rich.console import Console
    from rich.table import Table

    listed = [list(row) for row in rows]
    if not sys.stdout.isatty():
        _print_lines(title, [headings, *listed])
        return
    console = Console(markup=False)
    widths = _widths([headings, *listed], console.width)
    if widths is None:
        _print_paragraphs(title, headings, listed, console.width)
        return
    table = Table(title=title, title_justify="left")
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, width=width)
    for row in listed:
        table.add_row(*row)
    console.print(table)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Each column is at least as wide as its longest word; what is left over goes to those that have longer texts. None: no room."""
    columns = list(zip(*rows, strict=True))
    widths = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    wanted = [max(map(len, column)) for column in columns]
    # Between two columns there is a line with a space on both sides.
    spare = room - sum(widths) - 3 * len(widths) - 1
    if spare < 0:
        return None
    order = sorted(range(len(columns)), key=lambda place: wanted[place] - widths[place])
    for done, place in enumerate(order):
        more = min(wanted[place] - widths[place], spare // (len(order) - done))
        widths[place], spare = widths[place] + more, spare - more
    return widths


def _print_lines(title: str, rows: Sequence[Sequence[str]]) -> None:
    """One line a row, for a reader such as `grep` or `less`: there is no width to fit into."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    typer.echo(title)
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_paragraphs(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    typer.echo(title)
    for name, *cells in rows:
        typer.echo(f"\n{name}")
        for heading, cell in zip(headings[1:], cells, strict=True):
            for line in textwrap.wrap(
                f"{heading}: {cell}",
                max(20, width),
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            ):
                typer.echo(line)
