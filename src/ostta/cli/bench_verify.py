"""`ostta bench verify`: whether a result can be reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Data


def verify(
    result: Annotated[Path, typer.Argument(help="A result file.")],
    data: Data = None,
    opened: Annotated[
        list[str] | None,
        typer.Option("--open", help="A path or hub id of the file that may be opened. May be given several times."),
    ] = None,
) -> None:
    """Run the spec of a result file again and compare every figure, to the last bit. Exit code 1 where they differ.

    Example: ostta bench verify ostta-runs/rosita-cifar10c-mnist-s0-0123456789ab.json --data DATA
    """
    from ..bench.verify import Difference
    from ..bench.verify import verify as check
    from .grid_progress import grid_progress

    def listed(differences: tuple[Difference, ...]) -> None:
        for each in differences:
            print(f"  {each.field}: {each.filed} in the file, {each.now} now")

    with grid_progress() as watch:
        found = check(result, data, watch, opened or ())
    if found.same:
        print(f"verified: {result}")
        return
    print(f"not verified: {len(found.differences)} fields of {result} differ.")
    listed(found.differences)
    if found.circumstances:
        print("A likely reason, as this is different too:")
        listed(found.circumstances)
    else:
        print("Versions, hardware and threads are the same: the file, the data or the code has changed.")
    raise typer.Exit(1)
