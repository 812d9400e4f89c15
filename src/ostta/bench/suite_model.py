"""What a suite file holds: axes with their entries, and how they become rows and columns. `suite.py` reads files and makes runs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from ..config.plugins import names_file, placed_file
from ..config.registry import suggest
from ..evaluation.measures import MEASURES, WINDOW, find_measure, is_measure, measure_names
from ..evaluation.metrics import NAMES
from .file_model import FileModel, all_problems
from .paper.mapping import Filters
from .spec import RunSpec

FIELDS = set(RunSpec.model_fields)

# What makes the stream of a run: axes of nothing else are columns, unless the file says otherwise.
_OF_STREAM = {
    "desired",
    "undesired",
    "undesired_classes",
    "corruption",
    "severity",
    "ratio",
    "scenario",
    "limit",
    "classes",
}


# What a table can show, by the names of the paper's figures, and how it is headed. `accuracy` is over all desired images, accepted or not.
class Headings(dict[str, str]):
    """The headings of metrics by name; that of a measure from outside is looked up."""

    def __missing__(self, name: str) -> str:
        return find_measure(name).heading


METRICS = Headings(
    {
        "auroc": "AUROC ↑",
        "fpr95": "FPR95 ↓",
        "acc_desired": "Acc_D ↑",
        "acc_undesired": "Acc_U ↑",
        "hm": "HM ↑",
        "hm_std": "HM, standard deviation",
        "accepted_desired": "accepted D ↑",
        "accuracy": "accuracy ↑",
        "open_accuracy": "(C+1)-way accuracy ↑",
        "events": "events",
        "euclidean": "Euclidean ↑",
        "cosine": "cosine ↑",
        "wasserstein": "Wasserstein ↑",
        "average_matches": "K+",
        "reliable_pseudo_label": "right among reliable desired ↑",
        "reliable_undesired": "right among reliable undesired ↑",
        "ms": "ms/step ↓",
        "gpu_memory_gb": "GPU memory, GB ↓",
        "classes": "classes",
        "bank_features": "features kept ↓",
        "bank_mb": "features kept, MB ↓",
        "adapted_parameters": "parameters ↓",
        "added_parameters": "added parameters ↓",
        "hm_worst_tenth": "HM, worst tenth ↑",
        "regret": f"regret, worst {WINDOW} ↓",
        **{measure.name: measure.heading for measure in MEASURES.values()},
    }
)


def lower_is_better(metric: str) -> bool:
    """Whether a lower value of `metric` is the better one.

    >>> lower_is_better("fpr95"), lower_is_better("hm")
    (True, False)
    """
    return METRICS[metric].endswith("↓")


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
    """Whether all entries of an axis set nothing but the stream."""
    return all(isinstance(entry, dict) and set(entry.get("fields", ())) <= _OF_STREAM for entry in entries)
