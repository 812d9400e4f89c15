"""Benchmarks: runs, result files, tables and reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

__all__ = ["load_results"]


def load_results(folder: str | Path) -> pandas.DataFrame:
    """Return the results of a folder as a pandas table, with one row for each run and seed.

    The columns have the spec (`backbone`, `method`, `desired`, `seed` and so on, options as `option_NAME`), the figures
    in percent, counts, times, and the names of the files of result and records. `ostta bench table FOLDER --format csv`
    writes the same table.

    >>> from ostta.bench.run import run
    >>> from ostta.bench.spec import RunSpec
    >>> spec = RunSpec(method="zero_shot", desired="sample:cifar10c", undesired="sample:mnist", limit=2)
    >>> _ = run(spec, None, Path("runs"))
    >>> load_results("runs")[["backbone", "method", "seed", "images_desired"]].values.tolist()
    [['embedded', 'zero_shot', 0, 2]]
    """
    from .data_export import frame, tidy_rows
    from .folder import ResultFolder

    return frame(tidy_rows(ResultFolder(Path(folder)).require_results()))
