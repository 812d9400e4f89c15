"""The cells of a suite or of a folder, with their results."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config.registry import require_known
from ..core.types import Error
from .folder import Failure, read_failures, read_folder, results_in
from .naming import method_key, method_names, short, stream_key, stream_names
from .result import Result
from .spec import OF_THE_STREAM, RunSpec, run_key
from .suite import Axis, Cell, Entry, Suite, expand, load_suite, suite_names


@dataclass(frozen=True)
class SuiteResults:
    """The cells of a suite with what a folder has of them.

    `paths` has the file of each result; `shortened` are the cells whose limit was lowered below the suite's own. `command` makes what
    is missing. `strange` are JSON files that are no results; `older` counts results that a newer file of the same spec replaced, `others`
    those of runs that are no cells of this suite.
    """

    suite: Suite
    folder: Path
    cells: tuple[Cell, ...]
    shortened: frozenset[int]
    results: dict[str, Result]
    paths: dict[str, Path]
    failures: tuple[Failure, ...]
    strange: tuple[str, ...]
    older: int
    others: int
    command: str

    def result(self, cell: Cell) -> Result | None:
        return self.results.get(run_key(cell.spec))

    def file_of(self, result: Result) -> str:
        return self.paths[run_key(result.spec)].name

    @cached_property
    def found(self) -> int:
        return sum(self.result(cell) is not None for cell in self.cells)

    @property
    def missing(self) -> str:
        """One sentence about the cells without a result; empty where all are there."""
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


def collect_results(
    suite: Suite,
    folder: Path,
    seeds: Sequence[int] | None = None,
    limit: int | None = None,
    only: Mapping[str, Collection[str]] | None = None,
    given: Mapping[str, Any] | None = None,
) -> SuiteResults:
    """Expand `suite` and read what `folder` has of it; of several results with one spec, the newest file.

    `given` are fields that the runs had in place of the suite's, such as the device.
    """
    given = given or {}
    cells = tuple(_changed(cell, given) for cell in expand(suite, seeds, limit, only))
    full = [_changed(cell, given) for cell in expand(suite, seeds, None, only)]
    if not folder.is_dir():
        raise Error(
            f"There is no folder {folder} to read results from; `{_command(suite, folder, seeds, limit, only, given)}` makes it."
        )
    wanted = {run_key(cell.spec) for cell in cells}
    results: dict[str, Result] = {}
    paths: dict[str, Path] = {}
    strange: list[str] = []
    older = others = 0
    for name, path, result in results_in(folder, strange):
        if name in wanted:
            older += name in results
            results[name], paths[name] = result, path
        else:
            others += 1
    return SuiteResults(
        suite,
        folder,
        cells,
        frozenset(number for number, pair in enumerate(zip(cells, full, strict=True)) if pair[0].spec != pair[1].spec),
        results,
        paths,
        read_failures(folder, wanted - set(results)),
        tuple(strange),
        older,
        others,
        _command(suite, folder, seeds, limit, only, given),
    )


def _changed(cell: Cell, given: Mapping[str, Any]) -> Cell:
    return replace(cell, fields={**cell.fields, **given}) if given else cell


def _command(
    suite: Suite,
    folder: Path,
    seeds: Sequence[int] | None,
    limit: int | None,
    only: Mapping[str, Collection[str]] | None,
    given: Mapping[str, Any],
) -> str:
    parts = ["ostta bench run", shlex.quote(suite.name), f"--out {shlex.quote(str(folder))}"]
    if seeds is not None:
        parts.append(f"--seeds {','.join(map(str, seeds))}")
    if limit is not None:
        parts.append(f"--limit {limit}")
    for axis, names in (only or {}).items():
        parts += ["--only", shlex.quote(f"{axis}={','.join(names)}")]
    parts += [f"--{name} {value}" for name, value in given.items()]
    return " ".join(parts)


AXES = ("backbone", "method", "stream")


SHOWN = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")


@dataclass(frozen=True)
class FoundCell(Cell):
    """A cell whose run is there, with the spec of its file: code that it names is neither looked for nor run."""

    filed: RunSpec = field(default_factory=RunSpec)

    @cached_property
    def spec(self) -> RunSpec:
        return self.filed


def folder_results(
    folder: Path, seeds: Sequence[int] | None = None, only: Mapping[str, Collection[str]] | None = None
) -> SuiteResults:
    """What `folder` has, as if it were the results of a suite with the axes of `AXES`.

    `SuiteFigures(folder_results(folder))` has the figures. `only` keeps the given entries of an axis: {"method": ["rosita"]}.
    """
    files = read_folder(folder)
    if not files.results:
        raise Error(f"There are no results in {folder}; `ostta run --out {folder}` makes one.")
    cells = _chosen_cells(_cells(list(files.results.values())), seeds, only or {})
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


def _chosen_cells(
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


def is_folder(what: str) -> bool:
    """Whether `what` is a folder of results and not a suite."""
    return Path(what).is_dir() and not what.endswith(".toml") and what not in suite_names()


def collect(
    what: str,
    out: Path,
    seeds: Sequence[int] | None,
    limit: int | None,
    only: Mapping[str, Collection[str]] | None,
    given: Mapping[str, Any],
) -> SuiteResults:
    """Collect the results of the suite called `what` from `out`; if `what` is a folder, all results in it."""
    if is_folder(what):
        if given:
            raise Error(f"--{next(iter(given))} is for suites: the folder {what} has each run as it was made.")
        if limit is not None:
            raise Error(f"--limit is for suites: the folder {what} has each run with the limit that it was made with.")
        return folder_results(Path(what), seeds, only)
    return collect_results(load_suite(what), out, seeds, limit, only, given)


Names = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """The cells of one row and column, one for each seed, and their results as far as they are there."""

    cells: tuple[Cell, ...]
    results: dict[int, Result]
    shortened: bool

    @property
    def plain(self) -> bool:
        """Whether the run is as published: the method's own score with LDA, and no option changed."""
        spec = self.cells[0].spec
        return (
            spec.score in (None, "max")
            and spec.identifier == "lda"
            and not spec.options
            and not spec.guard
            and spec.profile != "field"
        )

    @property
    def asked(self) -> str:
        """What its runs are asked for, whatever the seed."""
        return repr(sorted((name, repr(value)) for name, value in self.cells[0].fields.items() if name != "seed"))

    @property
    def keys(self) -> frozenset[str]:
        """Its runs."""
        return frozenset(run_key(result.spec) for result in self.results.values())


def grouped(collected: SuiteResults) -> dict[tuple[Names, Names], Place]:
    """The places by row and column, in the order of the cells."""
    cells: dict[tuple[Names, Names], list[tuple[int, Cell]]] = {}
    for number, cell in enumerate(collected.cells):
        cells.setdefault((cell.row, cell.column), []).append((number, cell))
    places = {}
    for name, numbered in cells.items():
        found = {cell.seed: collected.result(cell) for _, cell in numbered}
        places[name] = Place(
            tuple(cell for _, cell in numbered),
            {seed: result for seed, result in found.items() if result is not None},
            any(number in collected.shortened for number, _ in numbered),
        )
    return places


def other_stream(ours: Place, theirs: Place, seed: int) -> bool:
    """Whether the runs of a seed at two places are there, but saw different streams: other data, or files of an older version."""
    one, other = ours.results.get(seed), theirs.results.get(seed)
    return one is not None and other is not None and one.stream_identity != other.stream_identity


def stream_of(cell: Cell) -> str:
    """Backbone and stream of a cell: what a frozen row must share with it, whatever the method and its options."""
    return repr([getattr(cell.spec, name) for name in ("backbone", *OF_THE_STREAM) if name != "seed"])
