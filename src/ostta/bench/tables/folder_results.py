"""A folder of results as a suite: whatever lies there, in rows by backbone and method and columns by stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...config.registry import require_known
from ...core.types import Error
from ..failure import read_failures
from ..result import Result
from ..spec import RunSpec, run_key
from ..suite import Axis, Cell, Entry, Suite
from .run_names import method_key, method_names, short, stream_key, stream_names
from .suite_results import SuiteResults, results_in

AXES = ("backbone", "method", "stream")
SHOWN = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")


@dataclass(frozen=True)
class FoundCell(Cell):
    """A cell whose run is there, with the spec of its file: code that it names is neither looked for nor run."""

    filed: RunSpec = field(default_factory=RunSpec)

    @cached_property
    def spec(self) -> RunSpec:
        return self.filed


@dataclass(frozen=True)
class FoundFiles:
    """The results of a folder by run, the newest of each; `older` were replaced, `strange` are JSON files that are no results."""

    folder: Path
    results: dict[str, Result]
    paths: dict[str, Path]
    strange: tuple[str, ...]
    older: int


def read_folder(folder: Path) -> FoundFiles:
    """All result files of `folder`; an Error where it is not there."""
    if not folder.is_dir():
        raise Error(f"There is no folder {folder} to read results from; `ostta run --out {folder}` makes it.")
    results: dict[str, Result] = {}
    paths: dict[str, Path] = {}
    strange: list[str] = []
    older = 0
    for key, path, result in results_in(folder, strange):
        older += key in results
        results[key], paths[key] = result, path
    return FoundFiles(folder, results, paths, tuple(strange), older)


def folder_results(
    folder: Path, seeds: Sequence[int] | None = None, only: Mapping[str, Collection[str]] | None = None
) -> SuiteResults:
    """What `folder` has, as if it were the results of a suite with the axes of `AXES`.

    `SuiteFigures(folder_results(folder))` has the figures. `only` keeps the given entries of an axis: {"method": ["rosita"]}.
    """
    files = read_folder(folder)
    if not files.results:
        raise Error(f"There are no results in {folder}; `ostta run --out {folder}` makes one.")
    cells = _chosen(_cells(list(files.results.values())), seeds, only or {})
    if not cells:
        raise Error(f"None of the {len(files.results)} results in {folder} is of the seeds {seeds} and of {only}.")
    kept = {run_key(cell.spec) for cell in cells}
    axes = tuple(
        Axis(name=axis, entries=tuple(Entry(name=name) for name in dict.fromkeys(_entry(cell, axis) for cell in cells)))
        for axis in AXES
    )
    return SuiteResults(
        suite=Suite(
            name=str(folder),
            title=f"Results in {folder}",
            what="whatever lies there",
            labels=(),
            axes=axes,
            rows=AXES[:2],
            columns=AXES[2:],
            metrics=SHOWN,
            windows=0,
            seeds=tuple(sorted({cell.seed for cell in cells})),
        ),
        folder=folder,
        cells=tuple(cells),
        shortened=frozenset(),
        results={key: result for key, result in files.results.items() if key in kept},
        paths={key: path for key, path in files.paths.items() if key in kept},
        failures=read_failures(folder),
        strange=files.strange,
        older=files.older,
        others=len(files.results) - len(kept),
        command=f"ostta run --out {folder}",
    )


def _cells(results: Sequence[Result]) -> list[FoundCell]:
    specs = [result.spec for result in results]
    methods, streams = method_names(specs), stream_names(specs)
    cells = []
    for spec in specs:
        # An entry of an axis has no comma in its name, as `--only` takes several.
        names = (short(spec.backbone), methods[method_key(spec)], streams[stream_key(spec)])
        backbone, method, stream = (name.replace(", ", "; ").replace(",", "+") for name in names)
        cells.append(FoundCell(spec.model_dump(), (backbone, method), (stream,), spec.seed, {"table": []}, filed=spec))
    return sorted(cells, key=lambda cell: (cell.row, cell.column, cell.seed))


def _entry(cell: Cell, axis: str) -> str:
    return (*cell.row, *cell.column)[AXES.index(axis)]


def _chosen(
    cells: Sequence[FoundCell], seeds: Sequence[int] | None, only: Mapping[str, Collection[str]]
) -> list[FoundCell]:
    for axis, names in only.items():
        require_known(axis, AXES, "axis")
        for name in names:
            require_known(name, sorted({_entry(cell, axis) for cell in cells}), f"entry of {axis}")
    return [
        cell
        for cell in cells
        if (seeds is None or cell.seed in seeds) and all(_entry(cell, axis) in names for axis, names in only.items())
    ]
