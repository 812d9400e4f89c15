"""Tables of names. A name is never split, so that it can be copied: neither in a narrow terminal nor in a pipe."""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..config.registry import Component, ComponentKind

Files = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE.py:NAME]...", help="Also list classes of your files.")
]


def components(kind: ComponentKind, files: Sequence[str] | None) -> list[Component]:
    """Return all registered components and those in `files`; components that cannot be loaded give a warning."""
    from ..config.plugins import from_file
    from ..config.registry import find_component, list_components

    found, problems = list_components(kind)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return [*found, *(find_component(kind, from_file(name)) for name in files or ())]


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on a terminal, or one paragraph per row if it is too narrow; print one line per row into a pipe."""
    from rich.console import Console
    from rich.table import Table

    listed = [list(row) for row in rows]
    console = Console(markup=False)
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(headings, *listed, strict=True)]
        typer.echo(title)
        for row in [headings, *listed]:
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    elif columns := _column_widths([headings, *listed], console.width):
        table = Table(title=title, title_justify="left")
        for heading, width in zip(headings, columns, strict=True):
            table.add_column(heading, width=width)
        for row in listed:
            table.add_row(*row)
        console.print(table)
    else:
        typer.echo(title)
        wrapper = textwrap.TextWrapper(
            max(20, console.width),
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, *cells in listed:
            typer.echo(f"\n{name}")
            for heading, cell in zip(headings[1:], cells, strict=True):
                typer.echo(wrapper.fill(f"{heading}: {cell}"))


def _column_widths(rows: Sequence[Sequence[str]], available: int) -> list[int] | None:
    """Return column widths at which no word is split; None if the table would be wider than `available`.

    Rich splits words although a column has a minimum width.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    extra = [max(map(len, column)) - width for column, width in zip(columns, widths, strict=True)]
    # Two columns are separated by a line with a space on both sides.
    spare = available - sum(widths) - 3 * len(widths) - 1
    if spare < 0:
        return None
    for done, column in enumerate(sorted(range(len(columns)), key=extra.__getitem__)):
        added = min(extra[column], spare // (len(columns) - done))
        widths[column], spare = widths[column] + added, spare - added
    return widths
