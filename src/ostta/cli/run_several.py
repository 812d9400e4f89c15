"""`ostta run` with several seeds, or several values of an option: a small suite, its table and its page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures
    from ..bench.sweep import Sweep


def run_several(
    sweep: Sweep, data: Path | None, out: Path, *, records: bool | None, log: str | None, workers: int | None
) -> None:
    """Carry out the runs, print the table, and write the page; the suite's file is printed last."""
    from ..bench.collected import collect_results
    from ..bench.figures import SuiteFigures
    from ..bench.formats import FORMATS
    from ..bench.requirements import MissingError
    from ..bench.runner import plan, run_grid
    from ..bench.stream import seen_images
    from ..bench.suite import load_suite
    from ..io import write_atomically
    from ..pages.suite import page_name, suite_report
    from .grid_progress import grid_progress, tell_missing, title

    path = sweep.write(out, records=records is True)
    suite = load_suite(str(path))
    specs = plan(suite)
    typer.echo(f"{len(specs)} runs, those of the frozen row among them: {path}", err=True)
    try:
        with grid_progress() as watch:
            summary = run_grid(specs, data, out, workers=workers, keep_records=records, log=log, watch=watch)
    except MissingError as problem:
        path.unlink(missing_ok=True)
        tell_missing(problem)
        raise typer.Exit(1) from None
    if summary.skipped:
        typer.echo(f"{summary.skipped} results reused.", err=True)
    for ending in summary.failed:
        typer.echo(f"{title(ending.spec)} failed: {ending.reason}", err=True)
    figures = SuiteFigures(collect_results(suite, out))
    if len(sweep.entries()) > 2:
        sweep.write(out, records=records is True, best=_best(figures))
        figures = SuiteFigures(collect_results(load_suite(str(path)), out))
    typer.echo(FORMATS["md"](figures))
    page = out / page_name(str(path))
    write_atomically(page, suite_report(figures, partial(seen_images, root=data)).encode())
    typer.echo(f"Page: {page}")
    typer.echo(path)
    if summary.failed:
        raise typer.Exit(1)


def _best(figures: SuiteFigures) -> str:
    """A sentence about the row with the best mean, the frozen one left out; empty where nothing is known."""
    from ..bench.metric_values import lower_is_better, metric_name

    (column,) = figures.columns
    found = {row: figures.figure(row, column, figures.headline) for row in figures.rows if not figures.is_frozen(row)}
    means = {row: figure.mean for row, figure in found.items() if figure is not None and figure.mean is not None}
    top = (min if lower_is_better(figures.headline) else max)(means.values(), default=None)
    best = [" / ".join(row) for row, value in means.items() if value == top]
    name = metric_name(figures.headline)
    if len(best) > 1:
        return f"The best {name} is the same for {', '.join(best)}: nothing can be chosen by it."
    return f"The best {name} is that of {best[0]}." if best else ""
