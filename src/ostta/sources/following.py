"""Folders that grow: new images as they come, each when it is whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple

from ..core.types import Error
from ..data.images import read_image
from .files import SkippedFiles, has_image_name, is_image
from .item import Item, file_key
from .source import Skip, Source

# Seconds between two looks, or so many times as long as a look takes.
BETWEEN_LOOKS = 0.5
SHARE = 10
# Looks without a change after which a file that is no image will not become one.
PATIENCE = 20


class _Seen(NamedTuple):
    """A file as a look found it: one that is overwritten is another one."""

    path: str
    size: int
    changed: int


class Followed(Source):
    """The images of folders and of the folders in them, in the order of arrival, those that are there already first.

    A file is whole when two looks found it unchanged and it can be decoded. One that stays as it is and cannot be decoded is given
    after ten seconds, so that somebody says why.
    """

    waits = True

    def __init__(self, folders: Sequence[Path], skip: Skip | None) -> None:
        super().__init__(", ".join(map(str, folders)), skip)
        self._folders = folders
        self._closed = Event()
        self._missing: set[Path] = set()

    def check(self) -> None:
        for folder in self._folders:
            try:
                os.scandir(folder).close()
            except OSError as problem:
                raise Error(f"The folder '{folder}' cannot be read: {problem.strerror}.") from None

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[Item]:
        skipped = SkippedFiles()
        try:
            yield from self._arrivals(skipped)
        finally:
            skipped.tell(self)

    def _arrivals(self, skipped: SkippedFiles) -> Iterator[Item]:
        self._closed.clear()
        # Sixty-four bits of each file that was given: memory is that of the files that are there, and little for each.
        given: set[int] = set()
        unchanged: dict[_Seen, int] = {}
        while not self._closed.is_set():
            began = time.monotonic()
            there: set[int] = set()
            new: list[_Seen] = []
            for seen in self._look():
                if hash(seen) in given:
                    there.add(hash(seen))
                else:
                    new.append(seen)
            # What is gone is forgotten, but not with a whole folder, which may come back as it was.
            given = given if self._missing else there
            unchanged = {seen: unchanged.get(seen, -1) + 1 for seen in new}
            took = time.monotonic() - began
            for seen in sorted(unchanged, key=lambda seen: (seen.changed, seen.path)):
                if not unchanged[seen]:
                    continue
                key = file_key(*seen)
                if not _is_candidate(seen.path):
                    given.add(hash(seen))
                    skipped.add(seen.path)
                elif not self.wanted(key):
                    given.add(hash(seen))
                elif (item := self._whole(seen, key, unchanged[seen])) is not None:
                    given.add(hash(seen))
                    yield item
                if self._closed.is_set():
                    return
            self._closed.wait(max(BETWEEN_LOOKS, SHARE * took))

    def _look(self) -> Iterator[_Seen]:
        for folder in self._folders:
            there = True
            try:
                yield from _inside(str(folder))
            except OSError:
                there = False
            if not there and folder not in self._missing:
                self._missing.add(folder)
                self.tell("lost", f"The folder '{folder}' cannot be read any more; it is looked for again.")
            elif there and folder in self._missing:
                self._missing.remove(folder)
                self.tell("reconnected", f"The folder '{folder}' is there again.")

    def _whole(self, seen: _Seen, key: str, looks: int) -> Item | None:
        """The item of a file; None where it is still being written, or gone."""
        try:
            picture = read_image(seen.path)
        except Error:
            picture = None
        try:
            found = os.stat(seen.path)
        except OSError:
            return None
        if (found.st_size, found.st_mtime_ns) != (seen.size, seen.changed) or (picture is None and looks < PATIENCE):
            return None
        path = Path(seen.path)
        return Item(path if picture is None else picture, str(path), key, found.st_mtime, path=path)


def _inside(folder: str) -> Iterator[_Seen]:
    """Raises an OSError where `folder` itself cannot be read; what goes away meanwhile is left out."""
    left = [folder]
    while left:
        here = left.pop()
        try:
            entries = os.scandir(here)
        except OSError:
            if here == folder:
                raise
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif (has_image_name(entry.name) or not entry.name.startswith(".")) and entry.is_file():
                        found = entry.stat()
                        yield _Seen(entry.path, found.st_size, found.st_mtime_ns)
                except OSError:
                    continue


def _is_candidate(path: str) -> bool:
    """Whether a file is an image, or one of which only a part was written so far.

    A file with an unknown suffix, such as photo.jpg.part, may be renamed when it is complete; it is not looked into.
    """
    return has_image_name(path) or (not Path(path).suffix and is_image(Path(path)))
