"""`ostta compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Data, Opened, TextOrJson


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A result file, or a folder of result files.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another result file or folder.")],
    format_: TextOrJson = "text",
    to: Annotated[
        Path | None,
        typer.Option(help="Also write a page with the images whose decision changed, such as compare.html."),
    ] = None,
    data: Data = None,
    opened: Opened = None,
) -> None:
    """Compare two results or two folders of results.

    The comparison has settings, figures with paired intervals, and the images whose decision changed.

    Runs of two folders are paired if they have the same settings, or if they are the only ones on their stream.

    Example: ostta compare runs/zero_shot-0123456789ab.json runs/rosita-ba9876543210.json

    Example: ostta compare runs-before runs-after --to compare.html --data DATA
    """
    from ..bench.compare import as_json, open_sides
    from ..bench.compare import compare as compare_results
    from ..config.registry import require_known
    from ..io import write_atomically
    from ..pages.compare import compare_page, text
    from ..pages.images import stream_images

    write = {"text": text, "json": as_json}[require_known(format_, ("text", "json"), "format")]
    found = compare_results(open_sides(first, second))
    typer.echo(write(found), nl=False)
    if to is not None:
        page = compare_page(found, lambda result: stream_images(result, data, opened or ()))
        write_atomically(to, page.encode())
        # The JSON on stdout is for programs.
        typer.echo(to, err=format_ == "json")
    elif format_ == "text" and any(each.changes is not None for each in found.pairs):
        typer.echo("`--to compare.html` writes a page with the images whose decision changed.")
