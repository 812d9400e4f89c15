"""`ostta bench verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Data, Opened


def verify(
    result: Annotated[Path, typer.Argument(help="A result file.")],
    data: Data = None,
    opened: Opened = None,
) -> None:
    """Repeat the run of a result file and compare every figure exactly. The exit code is 1 if they differ.

    Example: ostta bench verify ostta-runs/rosita-cifar10c-mnist-s0-0123456789ab.json --data DATA
    """
    from ..bench.verify import verify as repeat
    from .progress import grid_progress

    with grid_progress() as watch:
        found = repeat(result, data, watch, opened or ())
    if found.same:
        print(f"verified: {result}")
        return
    differences, circumstances = (
        [f"  {one.field}: {one.stored} in the file, {one.now} now" for one in fields]
        for fields in (found.differences, found.circumstances)
    )
    same = "Versions, hardware and threads are the same: the file, the data or the code has changed."
    reason = ["A likely reason, because these differ too:", *circumstances] if circumstances else [same]
    print(f"not verified: {len(differences)} fields of {result} differ.", *differences, *reason, sep="\n")
    raise typer.Exit(1)
