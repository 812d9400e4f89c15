"""The images of a result's stream, as far as what only the file names may be opened."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ...core.types import Error
from ...data.names import OWN, parse_name
from ..own_code import files_of, sets_of
from ..result import Result
from ..run.seen_images import SeenImages, seen_images


def stream_images(result: Result, root: Path | None, opened: Collection[str] = ()) -> SeenImages:
    """What ships and what is in `root` is read; a path or code that the result file names only if it is in `opened`."""
    spec = result.spec
    own = [*files_of(spec), *(name for name in sets_of(spec) if parse_name(name).kind in OWN)]
    closed = next((name for name in own if name not in opened), None)
    if closed is not None:
        raise Error(f"Only the result file names {closed!r}: `--open {closed}` allows it to be read, if you trust it.")
    return seen_images(result, root)
