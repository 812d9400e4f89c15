"""`ostta bench`: suites, which are named grids of runs such as the tables of the paper."""

from __future__ import annotations

from typing import Annotated

import typer

from . import bench_run, bench_tables
from .listing import print_table

app = typer.Typer(help="Suites: the tables and figures of the paper as named grids of runs.", no_args_is_help=True)


@app.command("ls")
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


app.command("run")(bench_run.run)
app.command("verify")(bench_run.verify)
app.command("table")(bench_tables.table)
app.command("pictures")(bench_tables.pictures)
app.command("report")(bench_tables.report)
