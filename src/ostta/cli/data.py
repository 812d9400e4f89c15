"""`ostta data`: look a data set over, or get it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.types import Error

app = typer.Typer(help="Look data sets over, and get them.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(help="See `ostta ls datasets`; mnist:train names a split.")]
_Root = Annotated[Path | None, typer.Option("--data", help="Folder of the data sets; else the variable OSTTA_DATA.")]
_Corruption = Annotated[str, typer.Option(help="For a data set whose name ends in c.")]


@app.command()
def check(
    name: _Name,
    data: _Root = None,
    corruption: _Corruption = "snow",
    severity: Annotated[int, typer.Option(help="1 to 5.")] = 5,
    limit: Annotated[
        int | None, typer.Option(help="Of a folder of your own, decode and compare at most N images (10,000).")
    ] = None,
) -> None:
    """Is it all there? Counts, classes, origin and one decoded image.

    Of a folder of your own every image is looked at: what cannot be read, is too large or is there twice, and what is odd about the
    classes. The exit code is 1 where it cannot be used as it is.

    Example: ostta data check visda --data DATA

    Example: ostta data check folder:pets
    """
    from ..data.names import parse_name
    from .data_check import check_dataset
    from .folder_report import report_folder

    parsed = parse_name(name)
    if parsed.kind == "folder" and not parsed.corrupted:
        report_folder(Path(parsed.base).expanduser(), limit)
        return
    if limit is not None:
        raise Error(
            "--limit is for a folder of your own, folder:PATH: of other sets one image is decoded.",
            code="option-invalid",
        )
    found = check_dataset(name, data, corruption=corruption, severity=severity)
    dataset, expected = found.dataset, found.expected
    counts = f"{len(dataset):,}"
    if expected is not None:
        paper = "" if expected.paper is None else f"; in the paper {expected.paper:,}"
        counts += f" (official {expected.official:,}{paper})"
    more = ", ..." if len(dataset.classes) > 5 else ""
    rows = {
        "data set": dataset.name,
        "images": counts,
        "classes": f"{len(dataset.classes):,}: {', '.join(dataset.classes[:5])}{more}",
        "origin": dataset.origin,
        "layout": dataset.layout,
        "first": f"{found.size[0]} x {found.size[1]} pixels, class {dataset.classes[dataset.labels[0]]}",
        "note": dataset.note,
        "paper": "" if expected is None else expected.remark,
    }
    for heading, cell in rows.items():
        if cell:
            print(f"{heading:<10} {cell}")
    for warning in found.warnings:
        print(f"Warning: {warning}")


@app.command()
def get(
    name: Annotated[str | None, typer.Argument(help="See `ostta ls datasets`; mnist:train names a split.")] = None,
    data: _Root = None,
    corruption: _Corruption = "snow",
    suite: Annotated[
        str | None, typer.Option("--for", help="Fetch all data sets of a suite: see `ostta bench ls`, or a TOML file.")
    ] = None,
) -> None:
    """Fetch a data set into the data folder; run again, it goes on where it broke off.

    With `--for SUITE`, all data sets that the runs of a suite need. The exit code is 1 if one of them cannot be fetched.

    Example: ostta data get cifar10c --data DATA

    Example: ostta data get --for paper/table-cifar --data DATA
    """
    from ..io import ROOT_VARIABLE, data_folder

    if (name is None) == (suite is None):
        raise Error(
            "Give either the name of a data set, such as cifar10c, or --for with the name of a suite.",
            code="option-missing",
        )
    root = data_folder(data)
    if root is None:
        raise Error(
            f"There is no folder to write to: give the folder of your data sets as --data, or set {ROOT_VARIABLE}.",
            code="data-folder-missing",
        )
    if name is not None:
        _fetch(name, root, corruption)
    elif suite is not None and not _fetch_for(suite, root):
        raise typer.Exit(1)


def _fetch_for(suite: str, root: Path) -> bool:
    """Fetch the data sets of a suite that are not there; whether all of them are there afterwards."""
    from ..bench.requirements import sets_needed
    from ..bench.runner import plan
    from ..bench.suite import load_suite
    from ..data.by_name import open_dataset
    from ..data.catalogue import CATALOGUE
    from ..data.names import parse_name

    complete = True
    for name, corruption in sets_needed(plan(load_suite(suite))):
        parsed = parse_name(name)
        what = f"{name}, {corruption}" if parsed.corrupted else name
        if parsed.kind == "file":
            continue  # code that only a run executes
        try:
            origin = open_dataset(name, root, corruption=corruption, limit=1, named=False).origin
        except Error as problem:
            origin = None
            if parsed.kind != "known":
                complete = False
                print(f"{what} is missing: {problem}")
                continue
        # Corrupted images can be generated, but published files take precedence.
        has_published = parsed.kind == "known" and CATALOGUE[parsed.base].published is not None
        if origin is not None and not (origin == "generated" and has_published):
            print(f"{what} is there.")
            continue
        try:
            _fetch(name, root, corruption)
        except Error as problem:
            complete = complete and origin is not None
            print(f"{what} is {'missing' if origin is None else 'generated from the clean set'}: {problem}")
    return complete


def _fetch(name: str, root: Path, corruption: str) -> None:
    """Fetch one data set with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from ..downloads.get import get_dataset

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {}

        def watch(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        made = get_dataset(name, root, corruption=corruption, watch=watch)
    for path in made:
        print(path)
    if not made:
        print(f"{name} is in {root} already.")
