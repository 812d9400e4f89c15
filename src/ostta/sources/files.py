"""Images that are files: one, a folder of them, or a list with one path a line. They are found as they are asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..core.types import Error
from ..data.by_name import IMAGE_SUFFIXES
from ..regular_files import open_regular
from .item import Item, file_item, missing_item
from .source import Skip, Source

# Bytes of a line of a list; no system has longer paths.
LONGEST_LINE = 65_536


def is_image(path: Path) -> bool:
    """Whether the name is one of an image."""
    return path.suffix.lower() in IMAGE_SUFFIXES


class File(Source):
    """One image."""

    def __init__(self, path: Path, skip: Skip | None) -> None:
        super().__init__(str(path), skip)
        self._path = path

    def __iter__(self) -> Iterator[Item]:
        item = file_item(self._path)
        if self.wanted(item.key):
            yield item


class Folder(Source):
    """The images of a folder and of the folders in it, in the order of their names."""

    def __init__(self, folder: Path, skip: Skip | None) -> None:
        super().__init__(str(folder), skip)
        self._folder = folder

    def check(self) -> None:
        first = next(_inside(self._folder), None)
        if first is None:
            raise Error(f"There are no images in {self._folder} (looked for {', '.join(sorted(IMAGE_SUFFIXES))}).")
        if first.problem is not None and first.path == self._folder:
            raise Error(first.problem)

    def __iter__(self) -> Iterator[Item]:
        return (item for item in _inside(self._folder) if self.wanted(item.key))


class Listed(Source):
    """The images of a list with one path a line, empty lines left out: a file, or - for stdin. Names need not be UTF-8."""

    def __init__(self, source: str, skip: Skip | None) -> None:
        super().__init__(source, skip)
        if source == "-" and sys.stdin is None:
            raise Error("There is no standard input to read paths from.")

    def check(self) -> None:
        if self.name == "-":
            return
        with open_regular(Path(self.name), "list of images") as file:
            for line in _lines(file):
                if line is None or b"\0" in line:
                    raise Error(f"{self.name} is neither an image nor a text file with one path a line.")

    def __iter__(self) -> Iterator[Item]:
        if self.name == "-":
            yield from self._items(sys.stdin.buffer)
            return
        with open_regular(Path(self.name), "list of images") as file:
            yield from self._items(file)

    def _items(self, file: IO[bytes]) -> Iterator[Item]:
        for line in _lines(file):
            if line is None:
                yield missing_item(
                    self.name, f"A line of {self.name} has more than {LONGEST_LINE} bytes and is no path."
                )
            elif name := os.fsdecode(line).strip():
                item = file_item(Path(name))
                if self.wanted(item.key):
                    yield item


def _inside(folder: Path) -> Iterator[Item]:
    """Images and those of folders inside, each in the place of its name; names of folders that are open are held, not all."""
    # No recursion: folders may be nested more deeply than functions.
    left = [iter([(str(folder), True)])]
    while left:
        path, is_folder = next(left[-1], ("", False))
        if not path:
            left.pop()
        elif not is_folder:
            yield file_item(Path(path))
        else:
            try:
                left.append(iter(_listing(path)))
            except OSError as problem:
                yield missing_item(path, f"The folder '{path}' cannot be read: {problem.strerror}.", Path(path))


def _listing(folder: str) -> list[tuple[str, bool]]:
    """The images and folders in a folder, sorted, and whether they are folders."""
    with os.scandir(folder) as entries:
        # As with `Path.rglob`, a link to a folder is not followed: it may lead back here.
        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    return [(os.path.join(folder, name), is_folder) for name, is_folder in found if is_folder or is_image(Path(name))]


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines; None for one that is too long, whose rest is left out."""
    while line := file.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
        yield None
