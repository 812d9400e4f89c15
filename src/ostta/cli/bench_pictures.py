"""`ostta bench pictures`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import with_figures

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures


@with_figures
def pictures(
    figures: SuiteFigures,
    to: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("ostta-pictures"),
    format_: Annotated[str, typer.Option("--format", help="svg, pdf, png, or several, such as svg,pdf.")] = "svg,pdf",
) -> None:
    """Draw the figures of a suite or a folder for papers and slides.

    The pictures show the differences from the frozen model, and the average ranks over streams.

    Example: ostta bench pictures ostta-runs --to figures --format pdf
    """
    from ..pages.pictures import save_pictures

    paths, notes = save_pictures(figures, to, [name.strip() for name in format_.split(",")])
    for line in (*notes, *paths):
        typer.echo(line)
