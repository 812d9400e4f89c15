"""`ostta bench pictures`: a suite or a folder, drawn for papers and slides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import OUT, DeviceOfRuns, DtypeOfRuns, Limit, Only, Out, Seeds, SuiteOrFolder, suite_figures


def pictures(
    suite: SuiteOrFolder,
    to: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("ostta-pictures"),
    format_: Annotated[str, typer.Option("--format", help="svg, pdf or png, or several: svg,pdf.")] = "svg,pdf",
    out: Out = OUT,
    seeds: Seeds = None,
    limit: Limit = None,
    only: Only = None,
    device: DeviceOfRuns = None,
    dtype: DtypeOfRuns = None,
) -> None:
    """Draw a suite, or all results in a folder, for papers and slides: differences to the frozen row, and average ranks over streams.

    Example: ostta bench pictures ostta-runs --to figures --format pdf
    """
    from ..pages.pictures import save_pictures

    figures = suite_figures(suite, out, seeds=seeds, limit=limit, only=only, device=device, dtype=dtype)
    paths, sentences = save_pictures(figures, to, [name.strip() for name in format_.split(",")])
    for line in (*sentences, *paths):
        typer.echo(line)
