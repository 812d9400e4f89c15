"""`ostta bench ls`: the suites."""

from __future__ import annotations

from typing import Annotated

import typer

from .listing import print_table


def list_suites(
    suite: Annotated[
        str | None, typer.Argument(help="One of them, or a TOML file of yours: its axes and their entries, too.")
    ] = None,
) -> None:
    """The suites, how many runs each needs, and what of the paper it is. Example: ostta bench ls

    Example: ostta bench ls mine.toml
    """
    from ..bench.suite import expand, load_suite, runs, suite_names

    suites = [load_suite(name) for name in (suite_names() if suite is None else [suite])]
    # Files of one's own say nothing of the paper.
    place = [each.what if each.folder is None else each.what or "–" for each in suites]
    print_table(
        "Suites",
        ("suite", "what it shows", "of the paper" if suite is None else "where", "runs"),
        [(each.name, each.title, where, f"{runs(expand(each)):,}") for each, where in zip(suites, place, strict=True)],
    )
    if suite is None:
        return
    (one,) = suites
    typer.echo()
    print_table(
        "Axes: --only AXIS=ENTRY,ENTRY chooses",
        ("axis", "in tables", "entries"),
        [
            (axis.name, "rows" if axis.name in one.rows else "columns", ", ".join(entry.name for entry in axis.entries))
            for axis in one.axes
        ],
    )
    limit = "no limit" if one.limit is None else f"{one.limit:,} desired images a domain"
    typer.echo(f"Seeds {', '.join(map(str, one.seeds))}; {limit}; metrics {', '.join(one.metrics)}.")
