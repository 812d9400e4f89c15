"""`ostta ls results`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .listing import print_table
from .options import OUT, TextOrJson


def results(
    folder: Annotated[Path, typer.Argument(help="Folder of the result files.")] = OUT,
    format_: TextOrJson = "text",
) -> None:
    """List the results in a folder, one line per run and seed.

    Example: ostta ls results ostta-runs
    """
    from ..bench.data_export import tidy_rows
    from ..bench.folder import ResultFolder
    from ..bench.result import number
    from ..config.registry import require_known

    require_known(format_, ("text", "json"), "format")
    files = ResultFolder(folder)
    rows = tidy_rows(files)
    if format_ == "json":
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    # Most folders have no run on a selection of classes.
    selections = [name for name in ("classes", "undesired_classes") if any(row[name] for row in rows)]
    print_table(
        f"Results in {folder}",
        ("stream", *selections, "backbone", "method", "seed", "images", "HM", "AUROC", "records", "file"),
        [
            (
                row["stream"],
                *(row[name] or "" for name in selections),
                row["backbone"],
                row["name"],
                str(row["seed"]),
                f"{row['images_desired'] + row['images_undesired']:,}",
                number(row["hm"], "hm"),
                number(row["auroc"], "auroc"),
                "yes" if row["records"] and (folder / row["records"]).is_file() else "no",
                row["file"],
            )
            for row in rows
        ],
    )
    if files.unreadable:
        names = ", ".join(files.unreadable[:3])
        typer.echo(f"{len(files.unreadable)} JSON files are not result files of this version: {names}.")
