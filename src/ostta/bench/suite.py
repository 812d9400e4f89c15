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
from typing import Any

from pydantic import ValidationError

from ..config.registry import require_known
from ..core.checks import one_line
from ..core.types import Error
from .file_model import all_problems, first_problem
from .own_code import asked
from .paper.mapping import Filters, filters_of
from .spec import PARTS, RunSpec, usual_draw, with_profile_parts
from .suite_model import METRICS, Axis, Entry, Skip, Suite, lower_is_better

__all__ = [
    "METRICS",
    "Axis",
    "Cell",
    "Entry",
    "Skip",
    "Suite",
    "expand",
    "load_suite",
    "lower_is_better",
    "read_suite",
    "runs",
    "suite_names",
]

FOLDER = Path(__file__).parent / "suites"


@dataclass(frozen=True)
class Cell:
    """One run of a suite, and where its figure belongs: `row` and `column` are entry names, in the order of the suite's axes.

    `fields` are those of RunSpec that are not at their default; `paper` finds the paper's figures, together with a metric. `folder` is
    the suite's own, from which the files of code are named.
    """

    fields: dict[str, Any]
    row: tuple[str, ...]
    column: tuple[str, ...]
    seed: int
    paper: Filters
    folder: Path | None = None

    @cached_property
    def spec(self) -> RunSpec:
        try:
            return asked(RunSpec(**self.fields), self.folder)
        except ValidationError as problem:
            place = " / ".join([*self.row, *self.column])
            raise Error(f"The run {place} is not possible ({first_problem(problem)}).") from None

    @property
    def asked(self) -> str:
        """What the suite says of this run: the same on every machine, wherever it has its folders."""
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
        raise Error(f"There is no suite {name!r}; {hint}.")
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
        raise Error(f"The suite file {path} cannot be read ({problem.strerror}).") from None
    except ValidationError as problem:
        found = all_problems(problem, partial(_place, content))
        count = f"{len(found)} problems: " if len(found) > 1 else ""
        raise Error(f"{path} is not a suite file ({count}{'; '.join(found)}).") from None
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise Error(f"{path} is not a suite file ({one_line(problem)}).") from None
    except RecursionError:
        raise Error(f"{path} is not a suite file (it is nested too deeply).") from None


def _place(content: Mapping[str, Any], loc: tuple[Any, ...]) -> str:
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
    return len({cell.asked for cell in cells})


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
