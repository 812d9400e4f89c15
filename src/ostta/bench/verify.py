"""Carry out the run of a result file again, and compare every figure bit by bit."""

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
from .compare import flat
from .result import Result, read_result
from .runner import GridProgress, run_grid
from .spec import RunSpec, files_of, sets_of

# Fields that must be equal, and fields that may explain a difference.
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
    """A field that differs: the value in the file, and the value now. None if it does not exist."""

    field: str
    stored: Any
    now: Any


@dataclass(frozen=True)
class Verification:
    """The figures that differ, and differences in versions or hardware that may explain them."""

    differences: tuple[Difference, ...]
    circumstances: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        return not self.differences


def verify(
    path: Path, root: Path | None, watch: Callable[[GridProgress], None] | None = None, opened: Collection[str] = ()
) -> Verification:
    """Carry out the spec of the result file `path` again, with the same number of threads, in a temporary folder.

    Shipped and registered components and the data sets in `root` are opened. A hub id or a path in the file is opened
    only if it is in `opened`.
    """
    stored = read_result(path)
    for name in _own_names(stored.spec):
        if name not in opened:
            raise Error(
                f"The run of {path} would read {name!r}, which only the result file names: "
                f"allow it with `--open {name}` if you trust it.",
                code="consent-missing",
            )
    with tempfile.TemporaryDirectory(prefix="ostta-verify-") as folder:
        out = Path(folder)
        summary = run_grid(
            [stored.spec],
            root,
            out,
            workers=1,
            threads=stored.threads,
            keep_records=False,
            watch=watch,
            keep_going=True,
        )
        if summary.failed:
            raise Error(f"The run of {path} cannot be carried out: {summary.failed[0].reason}", code="run-failed")
        (repeated,) = out.glob("*.json")
        now = read_result(repeated)
    return Verification(_differences(stored, now, COMPARED), _differences(stored, now, CIRCUMSTANCES))


def _own_names(spec: RunSpec) -> Iterator[str]:
    """Yield the paths and hub ids of a run: names that are not shipped, registered or in the folder of data sets."""
    yield from files_of(spec)
    if not (spec.backbone in SHIPPED or names_file(spec.backbone) or spec.backbone in registered_names("backbone")):
        yield spec.backbone
    yield from (name for name in sets_of(spec) if parse_name(name).kind in OWN)


def _differences(stored: Result, now: Result, names: tuple[str, ...]) -> tuple[Difference, ...]:
    before, after = (flat(result.model_dump(mode="json"), lists=True) for result in (stored, now))
    return tuple(
        Difference(field, before.get(field), after.get(field))
        for field in dict.fromkeys([*before, *after])
        if any(field == name or field.startswith(f"{name}.") for name in names)
        and (field not in before or field not in after or before[field] != after[field])
    )
