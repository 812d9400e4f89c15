"""`ostta ls datasets`."""

from __future__ import annotations

import typer

from .listing import print_table


def datasets() -> None:
    """List the data sets that have a name.

    Example: ostta ls datasets
    """
    from ..data.by_name import dataset_names

    rows = dataset_names()
    counts = [["–" if count is None else f"{count:,}" for count in (row.images, row.classes)] for row in rows]
    print_table(
        "Data sets",
        ("data set", "images", "classes", "where it comes from; ROOT is your data folder"),
        [(row.name, *count, row.where) for row, count in zip(rows, counts, strict=True)],
    )
    typer.echo("NAME:SPLIT names a split. Without it, the first split is used:")
    for row in rows:
        if len(row.splits) > 1:
            # The 27 sequences of CCC would fill the screen.
            few = ", ".join(row.splits) if len(row.splits) < 4 else f"{row.splits[0]} and {len(row.splits) - 1} more"
            typer.echo(f"  {row.name}: {few}")
