"""Images that are files: one, a folder of them, or a list with one path per line. They are found as they are asked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..core.checks import shown
from ..core.types import Error
from ..core.words import counted
from ..data.by_name import IMAGE_SUFFIXES
from ..data.images import START, is_image_content
from ..io import open_regular, readable
from .addresses import HTTP, check_address, scheme_of, without_password
from .item import Item, file_item, missing_item
from .source import Skip, Source
from .web import WebImage

# Bytes of a line of a list; no system has longer paths.
LONGEST_LINE = 65_536
# Control characters that no line of text has.
NOT_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")
# The first bytes of documents that are text and not a list of paths, such as SVG images.
MARKUP = (b"<", b"%PDF")
# Names of skipped files that are told.
NAMED_FILES = 10


def has_image_name(name: str | Path) -> bool:
    """Whether the suffix of a file is one of an image."""
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def is_image(path: Path) -> bool:
    """Whether a file is an image by its suffix or, where that says nothing, by its content."""
    if has_image_name(path):
        return True
    try:
        with open_regular(path, "image file") as file:
            return is_image_content(file.read(START))
    except (Error, OSError):
        return False


class SkippedFiles:
    """The number of files that were skipped because they are not images, and the names of the first ones."""

    def __init__(self) -> None:
        self.count, self._names = 0, list[str]()

    def __str__(self) -> str:
        names = [shown(readable(name)) for name in self._names]
        more = [f"{self.count - len(names)} more"] if self.count > len(names) else []
        return f"{counted(self.count, 'file')} skipped, not an image by name or content: {', '.join(names + more)}."

    def add(self, name: str) -> None:
        """Count a file."""
        self.count += 1
        if len(self._names) < NAMED_FILES:
            self._names.append(name)

    def tell(self, source: Source) -> None:
        """Add an event to `source` if files were skipped."""
        if self.count:
            source.tell("skipped", str(self), {"files": self.count})


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
        skipped = SkippedFiles()
        first = next(_inside(self._folder, skipped), None)
        if first is None:
            raise Error(f"There are no images in {self._folder}.{f' {skipped}' if skipped.count else ''}")
        if first.problem is not None and first.path == self._folder:
            raise Error(first.problem)

    def __iter__(self) -> Iterator[Item]:
        skipped = SkippedFiles()
        try:
            yield from (item for item in _inside(self._folder, skipped) if self.wanted(item.key))
        finally:
            skipped.tell(self)


class Listed(Source):
    """The images of a list with one path or http(s) address per line, without empty lines: a file, or - for stdin.

    Names need not be UTF-8.
    """

    def __init__(self, source: str, skip: Skip | None) -> None:
        super().__init__(source, skip)
        self.waits = source == "-"
        if source == "-" and sys.stdin is None:
            raise Error("There is no standard input to read paths from.")

    def check(self) -> None:
        if self.name == "-":
            return
        with open_regular(Path(self.name), "list of images") as file:
            for line in _lines(file):
                if line is None or NOT_TEXT.search(line) or line.startswith(MARKUP):
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
                item = file_item(Path(name)) if scheme_of(name) is None else _address_item(name)
                if self.wanted(item.key):
                    yield item


def _address_item(address: str) -> Item:
    """The image at an address; an item that says what is wrong if there is none."""
    name = without_password(address)
    if scheme_of(address) not in HTTP:
        return missing_item(name, f"{name} cannot be read: addresses in a list begin with {' or '.join(HTTP)}.")
    try:
        check_address(address)
        return next(iter(WebImage(address)))
    except Error as problem:
        return missing_item(name, str(problem))


def _inside(folder: Path, skipped: SkippedFiles) -> Iterator[Item]:
    """Images and those of folders inside, each in the place of its name; names of folders that are open are held, not all."""
    # No recursion: folders may be nested more deeply than functions.
    left = [iter([(str(folder), True)])]
    while left:
        path, is_folder = next(left[-1], ("", False))
        if not path:
            left.pop()
        elif is_folder:
            try:
                left.append(iter(_listing(path)))
            except OSError as problem:
                yield missing_item(path, f"The folder '{path}' cannot be read: {problem.strerror}.", Path(path))
        elif is_image(Path(path)):
            yield file_item(Path(path))
        else:
            skipped.add(os.path.relpath(path, folder))


def _listing(folder: str) -> list[tuple[str, bool]]:
    """The files and folders in a folder, sorted, and whether they are folders; without hidden files that are not images."""
    with os.scandir(folder) as entries:
        # As with `Path.rglob`, a link to a folder is not followed: it may lead back here.
        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if not _is_ignored(entry))
    return [(os.path.join(folder, name), is_folder) for name, is_folder in found]


def _is_ignored(entry: os.DirEntry[str]) -> bool:
    """Whether nobody expects this entry to be read: a hidden file such as .DS_Store, or a link to a folder."""
    if has_image_name(entry.name) or entry.is_dir(follow_symlinks=False):
        return False
    return entry.name.startswith(".") or entry.is_dir()


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines; None for one that is too long, whose rest is left out."""
    while line := file.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
        yield None
