"""`ostta bench table`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error
from .options import with_figures

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures

PARQUET = "parquet"


@with_figures
def table(
    figures: SuiteFigures,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="md or latex: tables. latex-compact: only the main metric, with one column per stream. csv or "
            "parquet: one row per run and seed. figures: CSV of all figures; differences have intervals. json: "
            "everything.",
        ),
    ] = "md",
    to: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
) -> None:
    """Print the tables of a suite or a folder.

    The first row of each table is the frozen model. Differences have paired confidence intervals.

    Example: ostta bench table embedded/k --format latex --only stream=C-10C/MNIST

    Example: ostta bench table ostta-runs --format parquet --to runs.parquet
    """
    from ..bench.data_export import parquet, run_rows
    from ..bench.formats import FORMATS
    from ..config.registry import require_known
    from ..io import write_atomically

    require_known(format_, [*FORMATS, PARQUET], "format")
    if format_ == PARQUET and to is None:
        raise Error("A parquet file cannot be printed: name a file with `--to runs.parquet`.", code="option-missing")
    if not figures.collected.found:
        raise Error(figures.collected.missing, code="results-missing")
    if to is None:
        typer.echo(FORMATS[format_](figures), nl=False)
        return
    write_atomically(to, parquet(run_rows(figures)) if format_ == PARQUET else FORMATS[format_](figures).encode())
    typer.echo(to)
