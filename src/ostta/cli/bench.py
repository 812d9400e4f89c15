"""`ostta bench`: suites, which are named grids of runs such as the tables of the paper."""

from __future__ import annotations

import typer

from . import bench_run, bench_tables

app = typer.Typer(help="Suites: the tables and figures of the paper as named grids of runs.", no_args_is_help=True)


@app.command("ls")
def list_suites() -> None:
    """The suites, how many runs each needs, and what of the paper it is. Example: ostta bench ls"""
    from rich.console import Console
    from rich.table import Table

    from ..bench.suite import expand, load_suite, runs, suite_names

    table = Table(title="Suites", title_justify="left")
    table.add_column("suite", no_wrap=True)
    for heading in ("what it shows", "of the paper"):
        table.add_column(heading, overflow="fold")
    table.add_column("runs", justify="right")
    for name in suite_names():
        suite = load_suite(name)
        table.add_row(name, suite.title, suite.what, f"{runs(expand(suite)):,}")
    Console().print(table)


app.command("run")(bench_run.run)
app.command("verify")(bench_run.verify)
app.command("table")(bench_tables.table)
app.command("pictures")(bench_tables.pictures)
app.command("report")(bench_tables.report)
