"""`ostta bench report`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Data, Opened, with_figures

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures


@with_figures
def report(
    figures: SuiteFigures,
    to: Annotated[
        Path | None,
        typer.Option(help="The page. Default: SUITE.html in the folder of the results, or report.html for a folder."),
    ] = None,
    data: Data = None,
    opened: Opened = None,
) -> None:
    """Write an HTML page about a suite or a folder.

    The page has an overview, tables, images, charts and commands. It does not load anything from other addresses. It
    shows images of the streams if their data sets are found.

    Example: ostta bench report embedded/scores --data DATA --to scores.html
    """
    from ..io import write_atomically
    from ..pages.images import seen_images, stream_images
    from ..pages.suite import page_name, suite_report

    results = figures.collected
    # The data sets of a folder are named by its result files only: paths among them require --open.
    images = (
        partial(stream_images, root=data, opened=opened or ()) if results.of_folder else partial(seen_images, root=data)
    )
    path = results.folder / page_name(figures.suite.name) if to is None else to
    write_atomically(path, suite_report(figures, images).encode())
    typer.echo(path)
