"""`ostta bench table`: the tables of a suite or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.types import Error
from .options import OUT, DeviceOfRuns, DtypeOfRuns, Fpr95, Limit, Only, Out, Seeds, SuiteOrFolder, suite_figures

PARQUET = "parquet"


def table(
    suite: SuiteOrFolder,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="md or latex: tables; latex-compact: the headline only, one column for each stream; csv or parquet: one row for each "
            "run and seed; figures: CSV of all figures with their intervals; json: everything.",
        ),
    ] = "md",
    to: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    fpr95: Fpr95 = "interpolated",
    out: Out = OUT,
    seeds: Seeds = None,
    limit: Limit = None,
    only: Only = None,
    device: DeviceOfRuns = None,
    dtype: DtypeOfRuns = None,
) -> None:
    """Print the tables of a suite, or of all results in a folder: frozen row first, paired intervals, the paper's figures beside.

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
    figures = suite_figures(suite, out, seeds=seeds, limit=limit, only=only, device=device, dtype=dtype, fpr95=fpr95)
    if not figures.collected.found:
        raise Error(figures.collected.missing, code="results-missing")
    if to is None:
        typer.echo(FORMATS[format_](figures), nl=False)
        return
    write_atomically(to, parquet(run_rows(figures)) if format_ == PARQUET else FORMATS[format_](figures).encode())
    typer.echo(to)
