"""Carry out the run of a result file again, and compare every figure to the last bit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backbones import SHIPPED
from ..config.plugins import names_file, registered_names
from ..core.types import Error
from ..data.names import OWN, parse_name
from .result import Figures, Result, read_result
from .runner import GridProgress, run_grid
from .spec import RunSpec, files_of, sets_of

# What a run must give again, and what else may explain why it did not.
COMPARED = (
    "stream.hash",
    "weight_hash",
    "class_names_hash",
    "options",
    "counts",
    "updates",
    "metrics",
    "domains",
    "hm_mean_domains",
    "analyses",
)


CIRCUMSTANCES = ("versions", "hardware", "threads", "stream.identity")


@dataclass(frozen=True)
class Difference:
    """A field that is not the same: as the file has it, and as it is now. None: it is not there."""

    field: str
    filed: Any
    now: Any


@dataclass(frozen=True)
class Verification:
    """The figures that differ, and what else is different and may be why."""

    differences: tuple[Difference, ...]
    circumstances: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        return not self.differences


def verify(
    path: Path, root: Path | None, watch: Callable[[GridProgress], None] | None = None, opened: Collection[str] = ()
) -> Verification:
    """Run the spec of the result file `path` again, in a folder that is thrown away, with as many threads as then.

    What ships and the data sets under `root` are opened as the file names them; a hub id or a path only if it is in `opened`.
    """
    filed = read_result(path)
    for name in _own_names(filed.spec):
        if name not in opened:
            raise Error(
                f"The run of {path} would read {name!r}, a path, code or something to download that only the file names: "
                f"allow it with `--open {name}` if you trust it.",
                code="consent-missing",
            )
    with tempfile.TemporaryDirectory(prefix="ostta-verify-") as folder:
        out = Path(folder)
        summary = run_grid(
            [filed.spec],
            root,
            out,
            workers=1,
            threads=filed.threads,
            keep_records=False,
            watch=watch,
            keep_going=True,
        )
        if summary.failed:
            raise Error(f"The run of {path} cannot be carried out: {summary.failed[0].reason}", code="run-failed")
        (made,) = out.glob("*.json")
        now = read_result(made)
    return Verification(_differences(filed, now, COMPARED), _differences(filed, now, CIRCUMSTANCES))


def _own_names(spec: RunSpec) -> Iterator[str]:
    """What a run opens that neither ships, nor is registered, nor lies in the folder of the data sets: paths, and ids of the hub."""
    yield from files_of(spec)
    if not (spec.backbone in SHIPPED or names_file(spec.backbone) or spec.backbone in registered_names("backbone")):
        yield spec.backbone
    yield from (name for name in sets_of(spec) if parse_name(name).kind in OWN)


def _differences(filed: Result, now: Result, names: tuple[str, ...]) -> tuple[Difference, ...]:
    before, after = (_flat("", result.model_dump(mode="json")) for result in (filed, now))
    # A file from before some figures were counted cannot contradict them, nor the sentence that explains them.
    for content in (before, after):
        content.pop("metrics.convention", None)
    if filed.stream.identity is None:
        after.pop("stream.identity")
    after = {field: value for field, value in after.items() if field in before or not _came_later(field)}
    return tuple(
        Difference(field, before.get(field), after.get(field))
        for field in dict.fromkeys([*before, *after])
        if any(field == name or field.startswith(f"{name}.") for name in names)
        and (field not in before or field not in after or before[field] != after[field])
    )


def _came_later(field: str) -> bool:
    group, _, name = field.rpartition(".")
    return group.endswith("metrics") and name in Figures.later


def _flat(name: str, value: Any) -> dict[str, Any]:
    """The single values of nested content, by dotted names."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inside is None:
        return {name: value}
    return {
        field: single
        for key, part in inside
        for field, single in _flat(f"{name}.{key}" if name else str(key), part).items()
    }
