"""`ostta bench ls`."""

from __future__ import annotations

from typing import Annotated

import typer

from .listing import print_table


def ls(
    suite: Annotated[
        str | None, typer.Argument(help="A suite or a TOML file, whose axes and entries are listed too.")
    ] = None,
) -> None:
    """List the suites, such as the tables of the paper.

    Example: ostta bench ls

    Example: ostta bench ls mine.toml
    """
    from ..bench.suite import expand, load_suite, runs, suite_names

    suites = [load_suite(name) for name in (suite_names() if suite is None else [suite])]
    print_table(
        "Suites",
        ("suite", "content", "in the paper" if suite is None else "where", "runs"),
        [(each.name, each.title, each.what or "–", f"{runs(expand(each)):,}") for each in suites],
    )
    if suite is None:
        return
    (one,) = suites
    typer.echo()
    print_table(
        "Axes: --only AXIS=ENTRY,ENTRY selects entries",
        ("axis", "in tables", "entries"),
        [
            (axis.name, "rows" if axis.name in one.rows else "columns", ", ".join(entry.name for entry in axis.entries))
            for axis in one.axes
        ],
    )
    limit = "no limit" if one.limit is None else f"at most {one.limit:,} known images per domain"
    typer.echo(f"Seeds {', '.join(map(str, one.seeds))}; {limit}; metrics {', '.join(one.metrics)}.")
