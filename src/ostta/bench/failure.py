"""Runs that failed: a file each, which says why, for as long as the run has no result."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.types import Error
from ..io import make_folder, parse_json, read_regular, readable, write_atomically
from .spec import RunSpec, run_key

FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """A run that came to no result, and why."""

    run: str
    reason: str


def write_failure(out: Path, spec: RunSpec, reason: str, traceback: str | None) -> None:
    """Write down in the folder `out` that the run failed."""
    path = _path(out, spec)
    make_folder(path.parent)
    content = {"spec": spec.model_dump(mode="json"), "reason": reason, "traceback": traceback}
    text = readable(json.dumps(content, indent=2, ensure_ascii=False))
    write_atomically(path, f"{text}\n".encode())


def remove_failure(out: Path, spec: RunSpec) -> None:
    """Remove the file of a failed run that has a result now."""
    _path(out, spec).unlink(missing_ok=True)


def read_failures(folder: Path, wanted: Collection[str] | None = None) -> tuple[Failure, ...]:
    """The failed runs in `folder`, or those with these keys, and the files that cannot be read."""
    found = []
    for path in sorted((folder / FAILED).glob("*.json")):
        try:
            content: dict[str, Any] = parse_json(read_regular(path, "failure file"))
            spec = RunSpec.model_validate(content["spec"])
            key, reason = run_key(spec), str(content["reason"])
        except (Error, OSError, ValueError, KeyError, TypeError, RecursionError):
            found.append(Failure(readable(path.name), "This note of a failed run cannot be read."))
            continue
        if wanted is None or key in wanted:
            options = [f"{name}={value}" for name, value in spec.options.items()]
            parts = [spec.backbone, spec.method, *options, spec.desired, spec.undesired or "closed set"]
            found.append(Failure(", ".join([*parts, spec.scenario.kind, f"seed {spec.seed}"]), reason))
    return tuple(found)


def _path(out: Path, spec: RunSpec) -> Path:
    return out / FAILED / f"{run_key(spec)}.json"
