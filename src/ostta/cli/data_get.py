"""`ostta data get`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core.types import Error
from .options import Corruption, Data


def get(
    name: Annotated[str | None, typer.Argument(help="A name of `ostta ls datasets`, such as mnist:train.")] = None,
    data: Data = None,
    corruption: Corruption = "snow",
    suite: Annotated[
        str | None,
        typer.Option("--for", help="Download all data sets of a suite: a name of `ostta bench ls`, or a TOML file."),
    ] = None,
) -> None:
    """Download a data set, or all data sets of a suite.

    An interrupted download resumes if the command is repeated. The exit code is 1 if a data set cannot be downloaded.

    Example: ostta data get cifar10c --data DATA

    Example: ostta data get --for paper/table-cifar --data DATA
    """
    from ..data_tools.get import get_dataset
    from ..data_tools.suite import get_missing
    from ..io import ROOT_VARIABLE, data_folder
    from .progress import download_progress

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

    def download(name: str, corruption: str) -> None:
        with download_progress() as watch:
            paths = get_dataset(name, root, corruption=corruption, watch=watch)
        print("\n".join(map(str, paths)) or f"{name} is already in {root}.")

    if name is not None:
        download(name, corruption)
    elif suite is not None and not get_missing(suite, root, download, print):
        raise typer.Exit(1)
