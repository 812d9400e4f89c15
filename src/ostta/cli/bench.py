"""`ostta bench`: suites, which are named grids of runs such as the tables of the paper."""

from __future__ import annotations

import typer

from . import bench_ls, bench_pictures, bench_report, bench_run, bench_table, bench_verify

app = typer.Typer(help="Suites: the tables and figures of the paper as named grids of runs.", no_args_is_help=True)
app.command("ls")(bench_ls.list_suites)
app.command("run")(bench_run.run)
app.command("verify")(bench_verify.verify)
app.command("table")(bench_table.table)
app.command("pictures")(bench_pictures.pictures)
app.command("report")(bench_report.report)
