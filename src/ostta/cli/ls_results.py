"""`ostta ls results`: the runs of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def results(
    folder: Annotated[Path, typer.Argument(help="Folder of the result files.")] = Path("ostta-runs"),
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """The results in a folder, one line a run and seed. Example: ostta ls results ostta-runs"""
    from ..bench.data_export import tidy_rows
    from ..bench.folder import ResultFolder
    from ..bench.metric_values import number
    from ..config.registry import require_known
    from .listing import print_table

    require_known(format_, ("text", "json"), "format")
    files = ResultFolder(folder)
    rows = tidy_rows(files)
    if format_ == "json":
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    # Most folders have no run with chosen classes, and lines are long enough.
    chosen = [name for name in ("classes", "undesired_classes") if any(row[name] for row in rows)]
    print_table(
        f"Results in {folder}",
        ("stream", *chosen, "backbone", "method", "seed", "images", "HM", "AUROC", "records", "file"),
        [
            (
                row["stream"],
                *(row[name] or "" for name in chosen),
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
        typer.echo(
            f"{len(files.unreadable)} JSON files are no results of this version: {', '.join(files.unreadable[:3])}."
        )
