"""The results of a suite in a folder: files of any name, matched to cells by what their runs were asked for."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.types import Error
from ...io import readable
from ..failure import Failure, read_failures
from ..result import Result, read_result
from ..spec import run_key
from ..suite import Cell, Suite, expand


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


def results_in(folder: Path, strange: list[str]) -> Iterator[tuple[str, Path, Result]]:
    """The result files of `folder`, the oldest first, with their keys; what is no result is named in `strange`."""
    for path in sorted(folder.glob("*.json"), key=_age):
        try:
            result = read_result(path)
        except Error:
            strange.append(readable(path.name))
            continue
        yield run_key(result.spec), path, result


def _age(path: Path) -> tuple[int, str]:
    """The order of writing; what cannot be looked at, such as a link to nowhere, is the oldest."""
    try:
        return path.stat().st_mtime_ns, path.name
    except OSError:
        return 0, path.name


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
