"""The frozen result that a run can be set against: of the same stream and weights, in the same folder."""

from __future__ import annotations

from pathlib import Path

from ...core.types import Error
from ..result import Result, read_result
from ..spec import is_frozen


def frozen_result(result: Result, folder: Path) -> Result | None:
    """The newest in `folder`, whatever its file is called; None where there is none, or `result` is one itself."""
    if is_frozen(result.spec):
        return None
    found: tuple[int, Result] | None = None
    for path in folder.glob("*.json"):
        try:
            # Most files of a large folder are of other streams, and need not be read in full.
            if result.stream.hash not in path.read_text(encoding="utf-8", errors="replace"):
                continue
            other, written = read_result(path), path.stat().st_mtime_ns
        except (Error, OSError):
            continue
        if _comparable(other, result) and (found is None or written > found[0]):
            found = written, other
    return None if found is None else found[1]


def _comparable(frozen: Result, result: Result) -> bool:
    return (
        is_frozen(frozen.spec)
        and all(getattr(frozen, name) == getattr(result, name) for name in ("weight_hash", "class_names_hash"))
        and frozen.stream_identity == result.stream_identity
        and frozen.spec.dtype == result.spec.dtype
    )
