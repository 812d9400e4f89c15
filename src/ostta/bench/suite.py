"""Suites: named grids of runs, such as a table of the paper, written as data in `suites/`.

A file says what every run has in common (`base`), along which axes runs differ, which combinations make no sense, and what of it is
a row or a column. Two sets of files share their names: `paper/` as published, `embedded/` the same scaled to the model that ships.
`decide/` runs on feature files.

    [base]
    desired = "folder:pets"
    draw = "images"                                     # each seed draws its own images, and not only their order; or `orders = 10` above
    [axes]                                              # the one part that a file must have
    method = ["zero_shot", "rosita"]                    # a field of RunSpec, and the values it takes
    [axes.stream]                                       # or named entries, each setting fields
    "C-10C/SVHN" = { desired = "cifar10c", undesired = "svhn" }
    [axes.variant]
    zero_shot = { method = "zero_shot", drop = ["lr"] } # `drop` takes options away that another axis or the base gave
    "K=3" = { options.k = 3, paper.table = "tab:k" }    # `paper` changes where the figure of the paper is looked for
    tpt = { method = "tpt", limit = 200, seeds = [0] }  # `seeds`: only these of the suite's
    [axes.undesired]
    MNIST = { undesired = "mnist", group = "far" }      # `group`: tables have the mean over the columns of each

An empty `undesired` means a closed set. Code of one's own is named as "file.py:Name", from the folder of the suite. Where a file
does not say what rows and columns are, axes that set nothing but the stream are columns, and the others rows.
"""

from __future__ import annotations

import difflib
import itertools
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from ..config.plugins import names_file, placed_file
from ..config.registry import require_known, suggest
from ..core.checks import one_line
from ..core.types import Error
from ..evaluation.measures import is_measure, measure_names
from ..evaluation.metrics import NAMES
from .file_model import FileModel, all_problems, first_problem
from .metric_values import METRICS
from .paper.values import Filters, filters_of
from .spec import PARTS, RunSpec, fields_of, usual_draw, with_code, with_profile_parts

FIELDS = set(RunSpec.model_fields)


class Entry(FileModel):
    """One choice on an axis: fields of RunSpec, options to take away, and filters of the paper's figures.

    group: of a column; tables show the mean over the columns of a group, such as far and near unknowns. seeds: only these of the
    suite's, for what would take too long.
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
            f"the entry {self.name!r} sets {name!r}, which is no field of a run{suggest(name, sorted(FIELDS))}"
            for name in sorted(set(self.fields) - FIELDS)
        ]
        problems += _impossible({name: value for name, value in self.fields.items() if name in FIELDS})
        if "," in self.name:
            problems.append(
                f"the entry {self.name!r} has a comma in its name, which would split it on the command line"
            )
        return _without(problems, self)


class Axis(FileModel):
    """One way in which the runs of a suite differ."""

    name: str
    entries: tuple[Entry, ...] = Field(min_length=1)


class Skip(FileModel):
    """Combinations that are left out: all axes named in `where` must be at one of the entries listed."""

    where: dict[str, list[str]]
    reason: str


class Suite(FileModel):
    """The content of a suite file.

    Only `axes` must be there; a title is made from the file's name, and the five figures are the usual metrics.

    what: section and table of the paper, or a word of one's own. labels: its LaTeX labels. figures: filters that all cells have in common. parts: the domains
    of a run that have figures of their own, beside the whole. records: the per-image records are needed, for pictures and
    intervals. cache_features: runs that need nothing but image features share them, stream by stream; their times are then not shown.
    windows: so many images a window, in which rows are set against the frozen one; 0 for no such table.
    orders: the same images in so many orders, in place of `seeds`; `base.draw` is then "orders".
    differences: of which metrics tables show differences to the frozen row and to ROSITA; the headline's, if none are named.
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
        """What a file leaves out and can be known: its title, and which axes are rows and which columns."""
        if not isinstance(content, dict):
            return content
        filled = {"title": Path(str(content.get("name", ""))).stem, **content}
        axes = {axis["name"]: axis["entries"] for axis in content.get("axes", ()) if isinstance(axis, dict)}
        if isinstance(content.get("orders"), int) and isinstance(content.get("base", {}), dict):
            if "seeds" in content or "draw" in content.get("base", {}):
                raise ValueError(
                    "orders: the seeds are then 0, 1, ... and draw the orders, so name neither `seeds` nor `draw`"
                )
            filled |= {"seeds": range(content["orders"]), "base": {**content.get("base", {}), "draw": "orders"}}
        if isinstance(content.get("metrics"), list):
            # A measure in a file is named from the folder of the suite.
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
            problems.append(f"every axis is a row or a column, once: there are {', '.join(names)}")
        for skip in self.skip:
            for axis, entries in skip.where.items():
                strange = set(entries) - names.get(axis, set())
                if axis not in names or strange:
                    problems.append(
                        f"a skip rule speaks of {axis} = {sorted(strange) or entries}, which does not exist"
                    )
        unknown = sorted(set(self.differences) - set(self.metrics))
        if unknown:
            problems.append(f"unknown metrics or fields: differences of {unknown}, which are no metrics of the suite")
        return _without(problems, self)

    @field_validator("base")
    @classmethod
    def _possible(cls, base: dict[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(base) - FIELDS)
        problems = [f"unknown metrics or fields: {unknown}"] if unknown else []
        return _without([*problems, *_impossible({name: base[name] for name in base if name in FIELDS})], base)

    @field_validator("metrics")
    @classmethod
    def _known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        known = [*METRICS, *measure_names()]
        unknown = [
            f"{name!r}{suggest(name, known)}" for name in metrics if name not in METRICS and not is_measure(name)
        ]
        return _without([f"unknown metrics or fields: {each}" for each in unknown], metrics)

    @property
    def place(self) -> str:
        """Where its figures come from, for a heading: "in the paper: ..." only where it is a table or a figure of it."""
        return f"in the paper: {self.what}" if self.labels and self.folder is None else self.what

    @property
    def called(self) -> str:
        """Title, name and place, for the head of a table."""
        return f"{self.title} ({'; '.join(filter(None, (self.name, self.what)))})"

    @property
    def folder(self) -> Path | None:
        """The folder of a suite of one's own."""
        return Path(self.name).absolute().parent if self.name.endswith(".toml") else None

    @property
    def scale(self) -> Literal["paper", "embedded"]:
        return "paper" if self.name.startswith("paper/") else "embedded"


def _impossible(fields: Mapping[str, Any]) -> list[str]:
    """Fields of a run that none can have, such as a number in the place of options, are found when the file is read."""
    try:
        RunSpec(**fields)
    except ValidationError as problem:
        return all_problems(problem)
    return []


_Checked = TypeVar("_Checked")


def _without(problems: Sequence[str], checked: _Checked) -> _Checked:
    """`checked` where there are no problems, else one error with all of them."""
    if problems:
        raise ValueError("; ".join(problems))
    return checked


def _of_stream(entries: Any) -> bool:
    """Return whether the entries of an axis set fields of the stream only."""
    return all(
        isinstance(entry, dict) and set(entry.get("fields", ())) <= set(fields_of("stream")) for entry in entries
    )


FOLDER = Path(__file__).parent / "suites"


@dataclass(frozen=True)
class Cell:
    """One run of a suite and its place in the tables: `row` and `column` are entry names, in the order of the suite's axes.

    `fields` are the fields of RunSpec that differ from their defaults. `paper` finds the paper's figures, together with a metric.
    Files of code are relative to `folder`. `stored` is the spec of a result file; code that it names is not executed.
    """

    fields: dict[str, Any]
    row: tuple[str, ...]
    column: tuple[str, ...]
    seed: int
    paper: Filters
    folder: Path | None = None
    stored: RunSpec | None = None

    @cached_property
    def spec(self) -> RunSpec:
        if self.stored is not None:
            return self.stored
        try:
            return with_code(RunSpec(**self.fields), self.folder)
        except ValidationError as problem:
            place = " / ".join([*self.row, *self.column])
            raise Error(f"The run {place} is not possible ({first_problem(problem)}).", code="run-invalid") from None

    @property
    def request(self) -> str:
        """The fields that the suite sets for this run: the same on every machine, independent of its folders."""
        return json.dumps(self.fields, sort_keys=True, default=str)

    def paper_part(self, part: str) -> Filters:
        """The filters of one domain's figures, in place of those of the whole."""
        return {**self.paper, "scenario": f"{str(self.paper['scenario']).partition('/')[0]}/{part}"}


def suite_names() -> list[str]:
    """`decide/NAME`, `embedded/NAME` and `paper/NAME`."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.toml"))


def load_suite(name: str) -> Suite:
    """The suite called `name`, such as "paper/table-cifar", or the one in the file of that name, which ends in .toml."""
    if name.endswith(".toml"):
        return read_suite(Path(name), name)
    names = suite_names()
    if name not in names:
        alike = [full for full in names if full.endswith(f"/{name}")] or difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {' or '.join(map(repr, alike))}" if alike else "`ostta bench ls` lists them"
        raise Error(f"There is no suite {name!r}; {hint}.", code="suite-unknown")
    return read_suite(FOLDER / f"{name}.toml", name)


def read_suite(path: Path, name: str) -> Suite:
    """A suite file of any folder."""
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
    """A place in the file by the names of axes and entries."""
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
    """The cells in the order of the table, seed by seed within each.

    `limit` lowers the suite's own limits. `only` keeps the given entries of an axis: {"method": ["rosita"]}.
    """
    chosen = {axis.name: list(axis.entries) for axis in suite.axes}
    for name, wanted in (only or {}).items():
        require_known(name, chosen, "axis")
        known = [entry.name for entry in chosen[name]]
        for entry in wanted:
            require_known(entry, known, f"entry of {name}")
        chosen[name] = [entry for entry in chosen[name] if entry.name in wanted]
    cells = []
    for combination in _combinations(suite, chosen):
        limits = [entry.seeds for entry in combination.values() if entry.seeds is not None]
        for seed in suite.seeds if seeds is None else seeds:
            if not all(seed in allowed for allowed in limits):
                continue
            fields = _fields(suite, [combination[axis.name] for axis in suite.axes], seed, limit)
            row, column = (tuple(combination[axis].name for axis in side) for side in (suite.rows, suite.columns))
            cells.append(Cell(fields, row, column, seed, _filters(suite, combination.values(), fields), suite.folder))
    return cells


def runs(cells: Sequence[Cell]) -> int:
    """How many runs the cells need: cells with equal specs share one."""
    return len({cell.request for cell in cells})


def _combinations(suite: Suite, chosen: Mapping[str, Sequence[Entry]]) -> Iterator[dict[str, Entry]]:
    axes = [*suite.rows, *suite.columns]
    for entries in itertools.product(*(chosen[axis] for axis in axes)):
        combination = dict(zip(axes, entries, strict=True))
        if not any(all(combination[axis].name in names for axis, names in skip.where.items()) for skip in suite.skip):
            yield combination


def _fields(suite: Suite, entries: Sequence[Entry], seed: int, limit: int | None) -> dict[str, Any]:
    """The fields of one RunSpec: base, then the axes in the order of the file; options add up, other fields replace."""
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
        with suppress(Error):  # What is wrong with a run is said where its spec is made.
            fields |= {"draw": "images"} if usual_draw(fields) == "images" else {}
    fields, defaults = with_profile_parts(fields), _defaults()
    # Without its parts, the profile `field` means its own, not the defaults.
    kept = PARTS if fields.get("profile") == "field" else ()
    return {
        name: value for name, value in fields.items() if name in kept or name not in defaults or value != defaults[name]
    }


def _filters(suite: Suite, entries: Collection[Entry], fields: Mapping[str, Any]) -> Filters:
    """Where the paper has this cell: what the run itself says, then what the suite and the entries say."""
    filters: Filters = {"table": list(suite.labels), **filters_of({**_defaults(), **fields}), **suite.figures}
    for entry in entries:
        filters.update(entry.paper)
    return filters


def _defaults() -> dict[str, Any]:
    return {"scenario": {}, **RunSpec().model_dump()}
