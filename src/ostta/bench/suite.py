"""Suites: named grids of runs, such as a table of the paper, written as TOML files in `suites/`.

A file has the fields that all runs share (`base`), the axes along which runs differ, the combinations to skip, and
which axes are rows and columns. The files in `paper/` have the published setting, those in `embedded/` the same
setting scaled to the embedded model, and those in `decide/` run on feature files.

    [base]
    desired = "folder:pets"
    draw = "images"                                     # each seed draws its own images; or `orders = 10` at the top
    [axes]                                              # the only required part
    method = ["zero_shot", "rosita"]                    # a field of RunSpec and its values
    [axes.stream]                                       # or named entries, each of which sets fields
    "C-10C/SVHN" = { desired = "cifar10c", undesired = "svhn" }
    [axes.variant]
    zero_shot = { method = "zero_shot", drop = ["lr"] } # `drop` removes options of the base or of another axis
    "K=3" = { options.k = 3, paper.table = "tab:k" }    # `paper` changes the filters of the paper's figure
    tpt = { method = "tpt", limit = 200, seeds = [0] }  # `seeds`: a selection of the suite's seeds
    [axes.undesired]
    MNIST = { undesired = "mnist", group = "far" }      # `group`: tables show the mean over the columns of a group

An empty `undesired` means a closed set. Code in a file is named as "file.py:Name". Relative paths of code and of data
start at the folder of the suite. By default, axes that set only fields of the stream are columns, and all others are
rows.
"""

from __future__ import annotations

import difflib
import itertools
import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from ..config.plugins import names_file, placed_file
from ..config.registry import require_known, suggest
from ..core.checks import one_line
from ..core.types import Error
from ..evaluation.measures import is_measure, measure_names
from ..evaluation.metrics import NAMES
from ..schema import first_problem, problem_text
from .paper.values import Filters, filters_of
from .result import METRICS
from .spec import (
    FileModel,
    RunSpec,
    default_draw,
    default_fields,
    fields_of,
    with_code,
    with_profile_parts,
    without_defaults,
)

FIELDS = set(RunSpec.model_fields)


class Entry(FileModel):
    """One entry of an axis: fields of RunSpec, options to remove (`drop`), and filters of the paper's figures.

    group: group of a column; tables show the mean over the columns of each group, such as far and near unknowns.
    seeds: the seeds of the suite that are run, for entries that would take too long.
    """

    name: str
    fields: dict[str, Any] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    paper: Filters = Field(default_factory=dict)
    group: str = ""
    seeds: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _known(self) -> Entry:
        problems = [
            f"the entry {self.name!r} sets {name!r}, which is not a field of a run{suggest(name, sorted(FIELDS))}"
            for name in sorted(set(self.fields) - FIELDS)
        ]
        problems += _problems_of(self.fields)
        if "," in self.name:
            problems.append(
                f"the entry {self.name!r} has a comma in its name, which would split it on the command line"
            )
        return _checked(problems, self)


class Axis(FileModel):
    """A dimension along which the runs of a suite differ."""

    name: str
    entries: tuple[Entry, ...] = Field(min_length=1)


class Skip(FileModel):
    """Combinations that are skipped: those with one of the listed entries on each axis in `where`."""

    where: dict[str, list[str]]
    reason: str


class Suite(FileModel):
    """The content of a suite file.

    Only `axes` is required. The default title is the name of the file, and the default metrics are the five figures.

    what: section and table of the paper, or a description. labels: LaTeX labels of the paper's tables. figures: filters
    of the paper's figures for all cells. parts: domains of a run whose figures are shown separately. records: whether
    per-image records are needed, for charts and intervals. cache_features: whether runs that need only image features
    share them; their times are then not shown. windows: images in a window for comparisons with the frozen row; 0 for
    no such table. orders: number of orders of the same images, instead of `seeds`; `base.draw` is then "orders".
    differences: metrics whose differences to the frozen row and to ROSITA are shown; by default the headline.
    """

    name: str
    title: str = ""
    what: str = ""
    labels: tuple[str, ...] = ()
    remark: str = ""
    base: dict[str, Any] = Field(default_factory=dict)
    axes: tuple[Axis, ...] = Field(min_length=1)
    skip: tuple[Skip, ...] = ()
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    metrics: tuple[str, ...] = Field(NAMES, min_length=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    orders: Annotated[int, Field(ge=1)] | None = None
    limit: int | None = None
    figures: Filters = Field(default_factory=dict)
    parts: tuple[str, ...] = ()
    records: bool = False
    cache_features: bool = False
    differences: tuple[str, ...] = ()
    windows: int = Field(0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, content: Any) -> Any:
        """Fill in the title, and which axes are rows and columns."""
        if not isinstance(content, dict):
            return content
        filled = {"title": Path(str(content.get("name", ""))).stem, **content}
        axes = {axis["name"]: axis["entries"] for axis in content.get("axes", ()) if isinstance(axis, dict)}
        if isinstance(content.get("orders"), int) and isinstance(content.get("base", {}), dict):
            if "seeds" in content or "draw" in content.get("base", {}):
                raise ValueError("orders: the seeds 0, 1, ... draw the orders, so name neither `seeds` nor `draw`")
            filled |= {"seeds": range(content["orders"]), "base": {**content.get("base", {}), "draw": "orders"}}
        if isinstance(content.get("metrics"), list):
            # The path of a measure in a file is relative to the folder of the suite.
            folder = Path(str(content.get("name", ""))).absolute().parent
            filled["metrics"] = [placed_file(m, folder) if names_file(m) else m for m in content["metrics"]]
        rows, columns = (content.get(side) for side in ("rows", "columns"))
        if rows is None and columns is None:
            columns = [name for name, entries in axes.items() if _of_stream(entries)]
            columns = columns[1:] if len(columns) == len(axes) else columns
            rows = [name for name in axes if name not in columns]
        elif rows is None and isinstance(columns, list):
            rows = [name for name in axes if name not in columns]
        elif columns is None and isinstance(rows, list):
            columns = [name for name in axes if name not in rows]
        return {**filled, "rows": () if rows is None else rows, "columns": () if columns is None else columns}

    @model_validator(mode="after")
    def _fits_together(self) -> Suite:
        names = {axis.name: {entry.name for entry in axis.entries} for axis in self.axes}
        problems = []
        if sorted([*self.rows, *self.columns]) != sorted(names):
            problems.append(f"every axis must be a row or a column, once: the axes are {', '.join(names)}")
        for skip in self.skip:
            for axis, entries in skip.where.items():
                strange = set(entries) - names.get(axis, set())
                if axis not in names or strange:
                    problems.append(f"a skip rule names {axis} = {sorted(strange) or entries}, which does not exist")
        unknown = sorted(set(self.differences) - set(self.metrics))
        if unknown:
            problems.append(f"unknown metrics or fields: differences of {unknown}, which are not metrics of the suite")
        return _checked(problems, self)

    @field_validator("base")
    @classmethod
    def _possible(cls, base: dict[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(base) - FIELDS)
        problems = [f"unknown metrics or fields: {unknown}"] if unknown else []
        return _checked([*problems, *_problems_of(base)], base)

    @field_validator("metrics")
    @classmethod
    def _known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        known = list({*METRICS, *measure_names()})
        unknown = [
            f"{name!r}{suggest(name, known)}" for name in metrics if name not in METRICS and not is_measure(name)
        ]
        return _checked([f"unknown metrics or fields: {each}" for each in unknown], metrics)

    @property
    def place(self) -> str:
        """The place in the paper, for a heading; `what` if the suite is not of the paper."""
        return f"in the paper: {self.what}" if self.labels and self.folder is None else self.what

    @property
    def heading(self) -> str:
        """Title, name and `what`, for the heading of a table."""
        return f"{self.title} ({'; '.join(filter(None, (self.name, self.what)))})"

    @property
    def folder(self) -> Path | None:
        """The folder of a user's suite; None for a suite of the package."""
        return Path(self.name).absolute().parent if self.name.endswith(".toml") else None


def _problems_of(fields: Mapping[str, Any]) -> list[str]:
    """Return the problems of those fields that a run has, so that they are found when the file is read."""
    try:
        RunSpec(**{name: value for name, value in fields.items() if name in FIELDS})
    except ValidationError as problem:
        return all_problems(problem)
    return []


def all_problems(problem: ValidationError, place: Callable[[tuple[Any, ...]], str] | None = None) -> list[str]:
    """Return the place and the message of each problem. `place` converts the location of an error to text."""
    errors = problem.errors()
    inner = [error["loc"] for error in errors]
    texts = [
        one_line(problem_text(error, None if place is None else place(error["loc"])))
        for error in errors
        # A list without valid entries is not a problem of its own.
        if error["type"] != "too_short" or not any(loc[: len(error["loc"])] == error["loc"] != loc for loc in inner)
    ]
    return list(dict.fromkeys(texts))


_Value = TypeVar("_Value")


def _checked(problems: Sequence[str], value: _Value) -> _Value:
    """Return `value` if there are no problems; otherwise raise one error with all of them."""
    if problems:
        raise ValueError("; ".join(problems))
    return value


def _of_stream(entries: Any) -> bool:
    """Return whether the entries of an axis set fields of the stream only."""
    return all(
        isinstance(entry, dict) and set(entry.get("fields", ())) <= set(fields_of("stream")) for entry in entries
    )


FOLDER = Path(__file__).parent / "suites"


@dataclass(frozen=True)
class Cell:
    """One run of a suite and its place in the tables; `row` and `column` are entry names in the order of the axes.

    fields: fields of RunSpec that differ from their defaults. paper: filters of the paper's figures. folder: folder at
    which relative paths start. stored: spec of a result file; code that it names is not executed. shortened: whether
    the limit is below that of the suite.
    """

    fields: dict[str, Any]
    row: tuple[str, ...]
    column: tuple[str, ...]
    seed: int
    paper: Filters
    folder: Path | None = None
    stored: RunSpec | None = None
    shortened: bool = False

    @cached_property
    def spec(self) -> RunSpec:
        if self.stored is not None:
            return self.stored
        try:
            return with_code(RunSpec.model_validate(self.fields, context={"folder": self.folder}), self.folder)
        except ValidationError as problem:
            place = " / ".join([*self.row, *self.column])
            raise Error(f"The run {place} is not possible ({first_problem(problem)}).", code="run-invalid") from None

    @property
    def request(self) -> str:
        """The fields that the suite sets for this run, which do not depend on the folders of a machine."""
        return json.dumps(self.fields, sort_keys=True, default=str)

    def paper_part(self, part: str) -> Filters:
        """Return the filters of the figures of one domain."""
        return {**self.paper, "scenario": f"{str(self.paper['scenario']).partition('/')[0]}/{part}"}


def suite_names() -> list[str]:
    """Return the names of all suites, such as "paper/table-cifar"."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.toml"))


def load_suite(name: str) -> Suite:
    """Return the suite `name`, such as "paper/table-cifar", or that of a file whose name ends in .toml."""
    if name.endswith(".toml"):
        return read_suite(Path(name), name)
    names = suite_names()
    if name not in names:
        alike = [full for full in names if full.endswith(f"/{name}")] or difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {' or '.join(map(repr, alike))}" if alike else "`ostta bench ls` lists them"
        raise Error(f"There is no suite {name!r}; {hint}.", code="suite-unknown")
    return read_suite(FOLDER / f"{name}.toml", name)


def read_suite(path: Path, name: str) -> Suite:
    """Read a suite file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        axes = content.get("axes", {})
        if not isinstance(axes, dict):
            raise ValueError("axes: a table of axes, each with its entries")
        return Suite(**{**content, "name": name, "axes": [_axis(*item) for item in axes.items()]})
    except OSError as problem:
        raise Error(f"The suite file {path} cannot be read ({problem.strerror}).", code="file-unreadable") from None
    except ValidationError as problem:
        found = all_problems(problem, partial(_place_in_file, content))
        count = f"{len(found)} problems: " if len(found) > 1 else ""
        raise Error(f"{path} is not a suite file ({count}{'; '.join(found)}).", code="suite-invalid") from None
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise Error(f"{path} is not a suite file ({one_line(problem)}).", code="suite-invalid") from None
    except RecursionError:
        raise Error(f"{path} is not a suite file (it is nested too deeply).", code="suite-invalid") from None


def _place_in_file(content: Mapping[str, Any], loc: tuple[Any, ...]) -> str:
    """Return a place in the file with the names of axes and entries instead of their numbers."""
    if len(loc) < 2 or loc[0] != "axes":
        return ".".join(map(str, loc))
    name = list(content["axes"])[loc[1]]
    entries = content["axes"][name]
    inner = [list(entries)[loc[3]], *loc[4:]] if len(loc) > 3 else loc[2:]
    return ".".join(map(str, ["axes", name, *inner]))


def _axis(name: str, content: Any) -> dict[str, Any]:
    if isinstance(content, list):
        return {"name": name, "entries": [{"name": str(value), "fields": {name: value}} for value in content]}
    entries = []
    for entry, given in content.items():
        fields = dict(given)
        own = {key: fields.pop(key) for key in ("drop", "paper", "group", "seeds") if key in fields}
        entries.append({"name": entry, "fields": fields, **own})
    return {"name": name, "entries": entries}


def expand(
    suite: Suite,
    seeds: Sequence[int] | None = None,
    limit: int | None = None,
    only: Mapping[str, Collection[str]] | None = None,
) -> list[Cell]:
    """Return the cells in the order of the table, and seed by seed within each place.

    `limit` lowers the limits of the suite. `only` selects entries of an axis: {"method": ["rosita"]}.
    """
    chosen = {axis.name: list(axis.entries) for axis in suite.axes}
    for name, selected in (only or {}).items():
        require_known(name, chosen, "axis")
        known = [entry.name for entry in chosen[name]]
        for entry in selected:
            require_known(entry, known, f"entry of {name}")
        chosen[name] = [entry for entry in chosen[name] if entry.name in selected]
    cells = []
    for combination in _combinations(suite, chosen):
        limits = [entry.seeds for entry in combination.values() if entry.seeds is not None]
        for seed in suite.seeds if seeds is None else seeds:
            if not all(seed in allowed for allowed in limits):
                continue
            entries = [combination[axis.name] for axis in suite.axes]
            fields = _fields(suite, entries, seed, limit)
            row, column = (tuple(combination[axis].name for axis in side) for side in (suite.rows, suite.columns))
            filters = _filters(suite, combination.values(), fields)
            shortened = limit is not None and fields != _fields(suite, entries, seed, None)
            cells.append(Cell(fields, row, column, seed, filters, suite.folder, shortened=shortened))
    return cells


def runs(cells: Sequence[Cell]) -> int:
    """Return the number of runs of the cells. Cells with equal specs share one run."""
    return len({cell.request for cell in cells})


def _combinations(suite: Suite, chosen: Mapping[str, Sequence[Entry]]) -> Iterator[dict[str, Entry]]:
    axes = [*suite.rows, *suite.columns]
    for entries in itertools.product(*(chosen[axis] for axis in axes)):
        combination = dict(zip(axes, entries, strict=True))
        if not any(all(combination[axis].name in names for axis, names in skip.where.items()) for skip in suite.skip):
            yield combination


def _fields(suite: Suite, entries: Sequence[Entry], seed: int, limit: int | None) -> dict[str, Any]:
    """Return the fields of one RunSpec: the base, then the axes in the order of the file. Options are merged."""
    fields: dict[str, Any] = {"limit": suite.limit, "seed": seed}
    options: dict[str, Any] = {}
    for given in (suite.base, *(entry.fields for entry in entries)):
        fields.update(given)
        options.update(given.get("options", {}))
    for entry in entries:
        for name in entry.drop:
            options.pop(name, None)
    limits = [given for given in (fields["limit"], limit) if given is not None]
    fields.update(options=options, limit=min(limits, default=None))
    if fields.get("undesired") == "":
        fields.update(undesired=None, ratio=0.0)
    if "draw" not in fields:
        with suppress(Error):  # `Cell.spec` reports an invalid run.
            fields |= {"draw": "images"} if default_draw(fields) == "images" else {}
    return without_defaults(with_profile_parts(fields))


def _filters(suite: Suite, entries: Collection[Entry], fields: Mapping[str, Any]) -> Filters:
    """Return the filters of the paper's figure: those of the run, overridden by the suite and the entries."""
    named: Filters = {"table": list(suite.labels), **suite.figures}
    for entry in entries:
        named.update(entry.paper)
    # A suite that names no table of the paper is not compared with it.
    return {**filters_of({**default_fields(), **fields}), **named} if named["table"] else named
