"""The cells of a suite or of a folder, with their results."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config.registry import require_known
from ..core.types import Error
from .folder import Failure, ResultFolder, StoredResult
from .naming import method_names, short, stream_names
from .result import Result
from .spec import RunSpec, method_key, run_key, stream_key
from .suite import Axis, Cell, Entry, Suite, expand, suite_names

# Entry names, one for each axis of the rows or columns.
Names = tuple[str, ...]
# A row and a column.
Position = tuple[Names, Names]

AXES = ("backbone", "method", "stream")
SHOWN = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")


@dataclass(frozen=True)
class SuiteResults:
    """The cells of a suite or of a folder, with the results that exist.

    stored: the newest result of each run, by its key. arguments: those of the commands of `ostta bench`. unreadable:
    JSON files that are not results. older: number of results that a newer file of the same run replaces. others: number
    of results of runs that are not cells of this suite. of_folder: whether the cells are made from the runs of the
    folder.
    """

    suite: Suite
    folder: Path
    cells: tuple[Cell, ...]
    stored: dict[str, StoredResult]
    failures: tuple[Failure, ...]
    unreadable: tuple[str, ...]
    older: int
    others: int
    arguments: str
    of_folder: bool = False

    @property
    def command(self) -> str:
        """The command that carries out the missing runs."""
        return f"ostta run --out {self.folder}" if self.of_folder else f"ostta bench run {self.arguments}"

    def result(self, cell: Cell) -> Result | None:
        stored = self.stored.get(run_key(cell.spec))
        return None if stored is None else stored.result

    def file_of(self, result: Result) -> str:
        return self.stored[run_key(result.spec)].path.name

    @cached_property
    def found(self) -> int:
        return sum(self.result(cell) is not None for cell in self.cells)

    @property
    def missing(self) -> str:
        """A sentence about the cells without a result; empty if there are none."""
        total, found = len(self.cells), self.found
        if not total:
            return f"The suite {self.suite.name} has no cells: its skip rules leave none."
        if found == total:
            return ""
        how = f"`{self.command}` makes them."
        if not found:
            hint = f", only {self.others} of other runs (of other limits or seeds?)" if self.others else ""
            return f"None of the {total} cells of {self.suite.name} has a result in {self.folder}{hint}; {how}"
        return f"{total - found} of {total} cells have no result in {self.folder} and are shown as –; {how}"


def is_folder(what: str) -> bool:
    """Return whether `what` is a folder of results and not a suite."""
    return Path(what).is_dir() and not what.endswith(".toml") and what not in suite_names()


def collect_results(
    suite: Suite,
    folder: Path,
    seeds: Sequence[int] | None = None,
    limit: int | None = None,
    only: Mapping[str, Collection[str]] | None = None,
    given: Mapping[str, Any] | None = None,
) -> SuiteResults:
    """Expand `suite` and read its results from `folder`. Of several results of one run, the newest file counts.

    `given` are fields that the runs had in place of those of the suite, such as the device.
    """
    given = given or {}
    arguments = _arguments(suite, folder, seeds, limit, only, given)
    cells = [replace(cell, fields={**cell.fields, **given}) for cell in expand(suite, seeds, limit, only)]
    if not folder.is_dir():
        command = f"ostta bench run {arguments}"
        raise Error(f"There is no folder {folder} to read results from; `{command}` makes it.", code="results-missing")
    results, keys = ResultFolder(folder), {run_key(cell.spec) for cell in cells}
    stored = {key: one for key, one in results.newest.items() if key in keys}
    return SuiteResults(
        suite=suite,
        folder=folder,
        cells=tuple(cells),
        stored=stored,
        failures=results.failures(keys - set(stored)),
        unreadable=tuple(results.unreadable),
        older=results.older(keys),
        others=sum(len(of) for key, of in results.by_key.items() if key not in keys),
        arguments=arguments,
    )


def _arguments(
    suite: Suite,
    folder: Path,
    seeds: Sequence[int] | None,
    limit: int | None,
    only: Mapping[str, Collection[str]] | None,
    given: Mapping[str, Any],
) -> str:
    parts = [shlex.quote(suite.name), f"--out {shlex.quote(str(folder))}"]
    if seeds is not None:
        parts.append(f"--seeds {','.join(map(str, seeds))}")
    if limit is not None:
        parts.append(f"--limit {limit}")
    for axis, names in (only or {}).items():
        parts += ["--only", shlex.quote(f"{axis}={','.join(names)}")]
    parts += [f"--{name} {value}" for name, value in given.items()]
    return " ".join(parts)


def folder_results(
    folder: Path, seeds: Sequence[int] | None = None, only: Mapping[str, Collection[str]] | None = None
) -> SuiteResults:
    """Collect all results of `folder`: rows by backbone and method, columns by stream.

    `only` selects entries of an axis: {"method": ["rosita"]}.
    """
    results = ResultFolder(folder).require_results()
    newest = results.newest
    cells = _selected(_cells([stored.result.spec for stored in newest.values()]), seeds, only or {})
    if not cells:
        raise Error(
            f"None of the {len(newest)} results in {folder} is of the seeds {seeds} and of {only}.",
            code="results-missing",
        )
    keys = {run_key(cell.spec) for cell in cells}
    names = {axis: dict.fromkeys(_entry(cell, axis) for cell in cells) for axis in AXES}
    suite = Suite(
        name=str(folder),
        title=f"Results in {folder}",
        what="all results of a folder",
        axes=tuple(Axis(name=axis, entries=tuple(Entry(name=name) for name in names[axis])) for axis in AXES),
        rows=AXES[:2],
        columns=AXES[2:],
        metrics=SHOWN,
        windows=0,
        seeds=tuple(sorted({cell.seed for cell in cells})),
    )
    return SuiteResults(
        suite=suite,
        folder=folder,
        cells=tuple(cells),
        stored={key: stored for key, stored in newest.items() if key in keys},
        failures=results.failures(),
        unreadable=tuple(results.unreadable),
        older=results.older(),
        others=len(newest) - len(keys),
        arguments=shlex.quote(str(folder)),
        of_folder=True,
    )


def _cells(specs: Sequence[RunSpec]) -> list[Cell]:
    methods, streams = method_names(specs), stream_names(specs)
    cells = []
    for spec in specs:
        # An entry of an axis has no comma in its name, because `--only` takes several entries.
        names = (short(spec.backbone), methods[method_key(spec)], streams[stream_key(spec)])
        backbone, method, stream = (name.replace(", ", "; ").replace(",", "+") for name in names)
        cells.append(Cell(spec.model_dump(), (backbone, method), (stream,), spec.seed, {"table": []}, stored=spec))
    return sorted(cells, key=lambda cell: (cell.row, cell.column, cell.seed))


def _entry(cell: Cell, axis: str) -> str:
    return (*cell.row, *cell.column)[AXES.index(axis)]


def _selected(cells: Sequence[Cell], seeds: Sequence[int] | None, only: Mapping[str, Collection[str]]) -> list[Cell]:
    for axis, names in only.items():
        require_known(axis, AXES, "axis")
        for name in names:
            require_known(name, sorted({_entry(cell, axis) for cell in cells}), f"entry of {axis}")
    return [
        cell
        for cell in cells
        if (seeds is None or cell.seed in seeds) and all(_entry(cell, axis) in names for axis, names in only.items())
    ]


@dataclass(frozen=True)
class Place:
    """The cells of one row and column, one for each seed, and their results."""

    cells: tuple[Cell, ...]
    results: dict[int, Result]

    @property
    def shortened(self) -> bool:
        """Whether a limit of the user applies."""
        return any(cell.shortened for cell in self.cells)

    @property
    def plain(self) -> bool:
        """Whether the run has the published settings: the method's own score with LDA, and no changed option."""
        spec = self.cells[0].spec
        own = spec.score in (None, "max") and spec.identifier == "lda" and spec.profile != "field"
        return own and not spec.options and not spec.guard

    @property
    def request(self) -> str:
        """The fields that the suite sets for its runs, without the seed."""
        return repr(sorted((name, repr(value)) for name, value in self.cells[0].fields.items() if name != "seed"))

    @property
    def stream(self) -> str:
        """Backbone and stream, which the frozen row of this place must share."""
        spec = self.cells[0].spec
        return f"{spec.backbone} {stream_key(spec)}"

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its runs."""
        return frozenset(run_key(result.spec) for result in self.results.values())

    def on_other_stream(self, other: Place, seed: int) -> bool:
        """Return whether both places have a run of this seed, but on different streams."""
        one, two = self.results.get(seed), other.results.get(seed)
        return one is not None and two is not None and one.stream_identity != two.stream_identity


def grouped(collected: SuiteResults) -> dict[Position, Place]:
    """Return the places by row and column, in the order of the cells."""
    places: dict[Position, list[Cell]] = {}
    for cell in collected.cells:
        places.setdefault((cell.row, cell.column), []).append(cell)
    return {
        place: Place(
            tuple(cells), {cell.seed: result for cell in cells if (result := collected.result(cell)) is not None}
        )
        for place, cells in places.items()
    }
