"""The figures of the paper, each with where it stands and, if it is not to be trusted, why.

The CSV files beside this module hold every figure of every table and every number of a drawn curve, the sources' unprinted tables
included; rows of ResNet backbones are left out. `setting` lists what differs from a method's defaults, as in the result file:
`losses=re,d`, `identifier=daf`, `group=lora;rank=8;optimiser=sgd;lr=1e-3`. `table` is the LaTeX label, or the name of the macro
where a table has none. Percentages, milliseconds and gigabytes; `delta_*` is the gain over zero_shot as it was printed.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...core.types import Error
from ..scenario import FrequentScenario

Filters = dict[str, str | list[str]]


# The paper's name of a backbone. The embedded ones stand beside the figures of the model whose part they play.
BACKBONES = {
    "openai/clip-vit-base-patch16": "clip-vit-b16",
    "openai/clip-vit-base-patch16+maple:maple": "maple-vit-b16",
    "openai/clip-vit-base-patch32": "clip-vit-b32",
    "openai/clip-vit-large-patch14": "clip-vit-l14",
    "laion/CLIP-ViT-L-14-laion2B-s32B-b82K": "openclip-vit-l14",
    "embedded": "clip-vit-b16",
    "embedded+maple": "maple-vit-b16",
}


# What the paper's tables have where they name nothing else; its closed sets have no identifier at all.
USUAL = {"identifier": ("lda", "all"), "corruption": ("snow",)}


def filters_of(run: Mapping[str, Any]) -> Filters:
    """The filters of a run, given all its fields by name; those of a figure follow with `metric`."""
    return {
        "backbone": BACKBONES.get(run["backbone"], run["backbone"]),
        "desired": run["desired"],
        # The paper does not say which split; the published code takes the training ones.
        "undesired": (run["undesired"] or "").partition(":")[0],
        "scenario": _scenario(run["scenario"], run["ratio"]),
        "method": run["method"],
        "setting": _setting(run),
    }


def _scenario(scenario: Mapping[str, Any], ratio: float) -> str:
    kind: str = scenario.get("kind", "single")
    if kind == "frequent":
        return f"frequent/{scenario.get('images', FrequentScenario.model_fields['images'].default)}"
    if kind == "single" and ratio not in (0.0, 1.0):
        return f"ratio/{ratio:g}"
    return {"continual": "continual/mean", "smooth": "ccc", "ordered": "ccc"}.get(kind, kind)


def _setting(run: Mapping[str, Any]) -> str:
    """What differs from a method's defaults, sorted, with short numbers."""
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
    """One printed figure. `doubt` is empty, or says what speaks against it."""

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
    """All of them, file by file."""
    return list(_read())


def find(**filters: str | Collection[str]) -> list[PaperValue]:
    """The figures whose fields equal the given texts, or are among them where several are given.

    >>> [value.value for value in find(table="tab:cifar", backbone="clip-vit-b16", desired="cifar10c", undesired="mnist",
    ...                                method="rosita", metric="hm")]
    [84.17]
    """
    for name in filters:
        if name not in PaperValue._fields or name == "value":
            known = ", ".join(field for field in PaperValue._fields if field != "value")
            raise Error(
                f"The figures of the paper cannot be found by {name!r}; there are {known}.", code="filter-unknown"
            )
    wanted = {name: {given} if isinstance(given, str) else set(given) for name, given in filters.items()}
    values, rows = _read(), set(range(len(_read())))
    for name, among in wanted.items():
        rows &= set().union(*(_rows(name).get(text, frozenset()) for text in among))
    return [values[row] for row in sorted(rows)]


@cache
def _rows(field: str) -> dict[str, frozenset[int]]:
    """Where each text of one field stands: tables ask for thousands of figures, one by one."""
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
