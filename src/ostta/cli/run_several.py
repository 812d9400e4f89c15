"""`ostta run` with several seeds or several values of an option: a suite with its table and its page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from ..bench.collected import collect_results
from ..bench.figures import SuiteFigures
from ..bench.formats import FORMATS
from ..bench.runner import plan
from ..bench.suite import load_suite
from ..bench.sweep import Sweep
from ..io import write_atomically
from ..pages.images import seen_images
from ..pages.suite import best_row, page_name, suite_report
from .progress import run_runs


def run_several(
    sweep: Sweep, data: Path | None, out: Path, *, records: bool | None, log: str | None, workers: int | None
) -> None:
    """Carry out the runs of a sweep, print the table and write the page. The path of the suite is printed last."""
    path = sweep.write(out, records=records is True)
    suite = load_suite(str(path))
    specs = plan(suite)
    typer.echo(f"{len(specs)} runs, including those of the frozen row: {path}", err=True)
    try:
        summary = run_runs(specs, data, out, workers=workers, keep_records=records, log=log)
    except typer.Exit:
        path.unlink(missing_ok=True)
        raise
    if summary.skipped:
        typer.echo(f"{summary.skipped} results reused.", err=True)
    figures = SuiteFigures(collect_results(suite, out))
    if len(sweep.entries()) > 2:
        sweep.write(out, records=records is True, best=best_row(figures))
        figures = SuiteFigures(collect_results(load_suite(str(path)), out))
    typer.echo(FORMATS["md"](figures))
    page = out / page_name(str(path))
    write_atomically(page, suite_report(figures, partial(seen_images, root=data)).encode())
    typer.echo(f"Page: {page}")
    typer.echo(path)
    if summary.failed:
        raise typer.Exit(1)
