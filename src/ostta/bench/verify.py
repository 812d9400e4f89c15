"""Whether a result file is what its run gives: the run is carried out again, and every figure must be the same to the last bit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.types import Error
from .pace import Pace
from .result import Result, read_result
from .runner import run_grid

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
CIRCUMSTANCES = ("versions", "hardware", "threads")


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


def verify(path: Path, root: Path | None, watch: Callable[[Pace], None] | None = None) -> Verification:
    """Run the spec of the result file `path` again, in a folder that is thrown away, with as many threads as then."""
    filed = read_result(path)
    with tempfile.TemporaryDirectory(prefix="ostta-verify-") as folder:
        out = Path(folder)
        summary = run_grid([filed.spec], root, out, workers=1, threads=filed.threads, watch=watch)
        if summary.failed:
            raise Error(f"The run of {path} cannot be carried out: {summary.failed[0].reason}")
        (made,) = out.glob("*.json")
        now = read_result(made)
    return Verification(_differences(filed, now, COMPARED), _differences(filed, now, CIRCUMSTANCES))


def _differences(filed: Result, now: Result, names: tuple[str, ...]) -> tuple[Difference, ...]:
    before, after = (_flat("", result.model_dump(mode="json")) for result in (filed, now))
    return tuple(
        Difference(field, before.get(field), after.get(field))
        for field in dict.fromkeys([*before, *after])
        if any(field == name or field.startswith(f"{name}.") for name in names)
        and (field not in before or field not in after or before[field] != after[field])
    )


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
