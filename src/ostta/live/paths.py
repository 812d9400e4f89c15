"""The images that a person names: a folder, an image, or a list of paths. Names are bytes to the system, and need not be UTF-8."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..core.types import Error
from ..data.by_name import IMAGE_SUFFIXES


def image_paths(source: str) -> Iterator[Path]:
    """The images of a folder in the order of their names, an image, or those of a list with one path a line: a file, or - for stdin."""
    if source == "-":
        if sys.stdin is None:
            raise Error("There is no standard input to read paths from.")
        return _listed_paths(sys.stdin.buffer)
    path = Path(source)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        if not found:
            raise Error(f"There are no images in {path} (looked for {', '.join(sorted(IMAGE_SUFFIXES))}).")
        return iter(found)
    if not path.is_file():
        raise Error(f"{source} is neither a folder nor a file.")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return iter([path])
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise Error(f"{source} cannot be read ({problem.strerror}).") from None
    if b"\0" in content:
        raise Error(f"{source} is neither an image nor a text file with one path a line.")
    return _listed_paths(content.split(b"\n"))


def _listed_paths(lines: Iterable[bytes]) -> Iterator[Path]:
    """One path a line; empty lines mean nothing."""
    names = (os.fsdecode(line).strip() for line in lines)
    return (Path(name) for name in names if name)
