"""Figures of the paper, each with its place and, if it is doubtful, the reason.

The CSV files beside this module contain every figure of every table and every number of a drawn curve, including tables
of the sources that were not printed; rows of ResNet backbones are omitted. `setting` lists what differs from the
defaults of a method, as in the result file: `losses=re,d`, `identifier=daf`, `group=lora;rank=8;optimiser=sgd;lr=1e-3`.
`table` is the LaTeX label, or the name of the macro if a table has no label. Values are percentages, milliseconds and
gigabytes; `delta_*` is the printed gain over zero_shot.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...core.types import Error
from ...evaluation.metrics import FPR95
from ..result import Result
from ..spec import FrequentScenario

Filters = dict[str, str | list[str]]


# Names of backbones in the paper. The embedded models are shown beside the figures of the model that they replace.
BACKBONES = {
    "openai/clip-vit-base-patch16": "clip-vit-b16",
    "openai/clip-vit-base-patch16+maple:maple": "maple-vit-b16",
    "openai/clip-vit-base-patch32": "clip-vit-b32",
    "openai/clip-vit-large-patch14": "clip-vit-l14",
    "laion/CLIP-ViT-L-14-laion2B-s32B-b82K": "openclip-vit-l14",
    "embedded": "clip-vit-b16",
    "embedded+maple": "maple-vit-b16",
}


# Defaults of the paper's tables; closed sets have no identifier.
USUAL = {"identifier": ("lda", "all"), "corruption": ("snow",)}


def filters_of(run: Mapping[str, Any]) -> Filters:
    """Return the filters of a run, given all its fields by name; a figure also needs `metric`."""
    return {
        "backbone": BACKBONES.get(run["backbone"], run["backbone"]),
        "desired": run["desired"],
        # The paper does not name the split; the published code uses the training split.
        "undesired": (run["undesired"] or "").partition(":")[0],
        "scenario": _scenario(run),
        "method": run["method"],
        "setting": _setting(run),
    }


def _scenario(run: Mapping[str, Any]) -> str:
    scenario, ratio, arrangement = run["scenario"], run["ratio"], str(run.get("arrangement", "shuffled"))
    if arrangement != "shuffled":
        return arrangement  # The paper has no figure.
    kind: str = scenario.get("kind", "single")
    if kind == "frequent":
        return f"frequent/{scenario.get('images', FrequentScenario.model_fields['images'].default)}"
    if kind == "single" and ratio not in (0.0, 1.0):
        return f"ratio/{ratio:g}"
    return {"continual": "continual/mean", "smooth": "ccc", "ordered": "ccc"}.get(kind, kind)


def _setting(run: Mapping[str, Any]) -> str:
    """Return what differs from the defaults of a method, sorted, with short numbers."""
    parts = {**run["options"], **{name: run[name] for name, usual in USUAL.items() if run[name] not in usual}}
    return ";".join(f"{name}={_text(value)}" for name, value in sorted(parts.items()))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            return f"{value:g}"
    return str(value)


FOLDER = Path(__file__).parent


class PaperValue(NamedTuple):
    """One printed figure. `doubt` is empty, or says why the figure is doubtful."""

    table: str
    cell: str
    backbone: str
    desired: str
    undesired: str
    scenario: str
    method: str
    setting: str
    metric: str
    value: float
    doubt: str


def paper_values() -> list[PaperValue]:
    """Return all figures, file by file."""
    return list(_read())


def find(**filters: str | Collection[str]) -> list[PaperValue]:
    """Return the figures whose fields equal the given texts, or are among them if several are given.

    >>> stream = {"backbone": "clip-vit-b16", "desired": "cifar10c", "undesired": "mnist"}
    >>> [value.value for value in find(table="tab:cifar", **stream, method="rosita", metric="hm")]
    [84.17]
    """
    for name in filters:
        if name not in PaperValue._fields or name == "value":
            known = ", ".join(field for field in PaperValue._fields if field != "value")
            raise Error(
                f"The figures of the paper cannot be found by {name!r}; there are {known}.", code="filter-unknown"
            )
    values, rows = _read(), set(range(len(_read())))
    for name, given in filters.items():
        texts = [given] if isinstance(given, str) else given
        rows &= set().union(*(_rows(name).get(text, frozenset()) for text in texts))
    return [values[row] for row in sorted(rows)]


def printed(filters: Filters, metric: str) -> PaperValue | None:
    """Return the paper's figure, one without doubt if several tables have it."""
    values = find(**filters, metric=metric)
    return next((value for value in values if not value.doubt), values[0] if values else None)


# Metrics that do not depend on the length of the stream.
OF_ANY_LENGTH = ("classes", "bank_features", "bank_mb", "adapted_parameters", "added_parameters")
OF_THE_MACHINE = ("ms", "gpu_memory_gb")


def why_not_comparable(result: Result, paper: Filters, metric: str, *, shortened: bool, fpr95: str) -> str:
    """Return why a figure of this run cannot be compared with the paper's; empty if it can.

    paper: filters of the paper's figure. shortened: whether a limit of the user applies.
    """
    if metric in OF_THE_MACHINE:
        return "another machine"
    backbone = result.spec.backbone
    # The embedded models stand in for those of the paper.
    if backbone.startswith("embedded") or BACKBONES.get(backbone) != paper.get("backbone"):
        return "another backbone"
    if metric == "fpr95" and FPR95[fpr95] != "fpr95":
        return "another convention of FPR95"
    if metric in OF_ANY_LENGTH:
        return ""
    sides = [side for side in (result.stream.desired, result.stream.undesired) if side is not None]
    if any(side.origin != "official" for side in sides):
        return "not the published images"
    return "fewer images" if shortened or result.counts.get("undesired_missing", 0) else ""


@cache
def _rows(field: str) -> dict[str, frozenset[int]]:
    """Return the rows of each text of one field, because tables look up thousands of figures."""
    found: dict[str, set[int]] = {}
    for row, value in enumerate(_read()):
        found.setdefault(getattr(value, field), set()).add(row)
    return {text: frozenset(rows) for text, rows in found.items()}


@cache
def _read() -> tuple[PaperValue, ...]:
    values = []
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                fields: dict[str, Any] = {**row, "value": float(row["value"])}
                values.append(PaperValue(**fields))
    return tuple(values)
