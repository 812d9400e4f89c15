"""`ostta bench report`: one page about a suite or a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .options import OUT, DeviceOfRuns, DtypeOfRuns, Fpr95, Limit, Only, Out, Seeds, SuiteOrFolder, suite_figures


def report(
    suite: SuiteOrFolder,
    to: Annotated[
        Path | None,
        typer.Option(help="The page; default: SUITE.html in the folder of the results, or report.html for a folder."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data sets, for images of the streams; default: the variable OSTTA_DATA."),
    ] = None,
    opened: Annotated[
        list[str] | None,
        typer.Option(
            "--open", help="For a folder: a data set that a result file names by a path, to be read for the page."
        ),
    ] = None,
    fpr95: Fpr95 = "interpolated",
    out: Out = OUT,
    seeds: Seeds = None,
    limit: Limit = None,
    only: Only = None,
    device: DeviceOfRuns = None,
    dtype: DtypeOfRuns = None,
) -> None:
    """Write one HTML page about a suite or a folder: overview, tables, images, charts and commands. It loads nothing from elsewhere.

    Example: ostta bench report embedded/scores --data DATA --to scores.html
    """
    from ..bench.stream import seen_images, stream_images
    from ..io import write_atomically
    from ..pages.suite import page_name, suite_report

    figures = suite_figures(suite, out, seeds=seeds, limit=limit, only=only, device=device, dtype=dtype, fpr95=fpr95)
    # Of a folder, only its result files name the data sets: those with paths need the user's consent.
    asking = partial(stream_images, root=data, opened=opened or ())
    images = asking if figures.collected.of_folder else partial(seen_images, root=data)
    path = figures.collected.folder / page_name(suite) if to is None else to
    write_atomically(path, suite_report(figures, images).encode())
    typer.echo(path)
