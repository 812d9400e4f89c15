"""`ostta compare`: two results, or two folders of results, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Data


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A result file, or a folder of them.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one of the same kind.")],
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    to: Annotated[
        Path | None, typer.Option(help="A page with the images that changed sides, such as compare.html.")
    ] = None,
    data: Data = None,
    opened: Annotated[
        list[str] | None,
        typer.Option("--open", help="A data set that a result file names by a path, to be read for the page."),
    ] = None,
) -> None:
    """What differs between two runs: settings, figures with paired intervals, and which images changed sides.

    Runs of two folders are paired where they were asked for the same, or are the only ones on their stream.

    Example: ostta compare runs/zero_shot-cifar10c-mnist-s0-0123456789ab.json runs/rosita-cifar10c-mnist-s0-ba9876543210.json

    Example: ostta compare runs-before runs-after --to compare.html --data DATA
    """
    from ..bench.compare import as_json, open_sides
    from ..bench.compare import compare as compared
    from ..bench.stream import stream_images
    from ..config.registry import require_known
    from ..io import write_atomically
    from ..pages.compare import compare_page, text

    written = {"text": text, "json": as_json}[require_known(format_, ("text", "json"), "format")]
    found = compared(open_sides(first, second))
    typer.echo(written(found), nl=False)
    if to is None:
        if format_ == "text" and any(each.changes is not None for each in found.pairs):
            typer.echo("`--to compare.html` writes a page with the images that changed sides.")
    else:
        page = compare_page(found, lambda result: stream_images(result, data, opened or ()))
        write_atomically(to, page.encode())
        # Beside JSON, which is for programs, the path goes where people look.
        typer.echo(to, err=format_ == "json")
