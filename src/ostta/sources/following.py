"""Follow folders and yield new images as soon as they are completely written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple

from ..core.errors import translate_errors
from ..core.types import Error
from ..data.images import read_image
from .files import SkippedFiles, has_image_name, is_image
from .source import Item, Skip, Source, file_key

# Minimum interval between two scans of the folders in seconds; slow scans are spaced further apart.
SCAN_INTERVAL = 0.5
SCAN_FACTOR = 10
# Number of scans without a change after which an unreadable file is reported.
MOST_SCANS = 20


class _Seen(NamedTuple):
    """State of a file in a scan. Overwriting a file changes its state."""

    path: str
    size: int
    changed: int


class FollowedFolders(Source):
    """The images of folders and their subfolders in order of arrival, starting with the existing images.

    A file is complete if it is unchanged in two scans and can be decoded. A file that is unchanged for ten seconds but
    cannot be decoded is also yielded, so that the problem is reported.
    """

    waits = True

    def __init__(self, folders: Sequence[Path], skip: Skip | None) -> None:
        super().__init__(", ".join(map(str, folders)), skip)
        self._folders = folders
        self._closed = Event()
        self._missing: set[Path] = set()

    def check(self) -> None:
        for folder in self._folders:
            message = f"The folder '{folder}' cannot be read: {{reason}}."
            with translate_errors("source-unreadable", message, OSError):
                os.scandir(folder).close()

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[Item]:
        skipped = SkippedFiles()
        try:
            yield from self._arrivals(skipped)
        finally:
            skipped.report(self)

    def _arrivals(self, skipped: SkippedFiles) -> Iterator[Item]:
        self._closed.clear()
        # Store 64-bit hashes instead of names to save memory.
        yielded: set[int] = set()
        unchanged: dict[_Seen, int] = {}
        while not self._closed.is_set():
            start = time.monotonic()
            present: set[int] = set()
            new: list[_Seen] = []
            for seen in self._scan(skipped):
                if hash(seen) in yielded:
                    present.add(hash(seen))
                else:
                    new.append(seen)
            # Remove deleted files, but not those of a missing folder, which may reappear unchanged.
            yielded = yielded if self._missing else present
            unchanged = {seen: unchanged.get(seen, -1) + 1 for seen in new}
            took = time.monotonic() - start
            for seen in sorted(unchanged, key=lambda seen: (seen.changed, seen.path)):
                if not unchanged[seen]:
                    continue
                key = file_key(*seen)
                if not _is_candidate(seen.path):
                    yielded.add(hash(seen))
                    skipped.add(seen.path)
                elif self.skips(key):
                    yielded.add(hash(seen))
                elif (item := self._complete(seen, key, unchanged[seen])) is not None:
                    yielded.add(hash(seen))
                    yield item
                if self._closed.is_set():
                    return
            self._closed.wait(max(SCAN_INTERVAL, SCAN_FACTOR * took))

    def _scan(self, skipped: SkippedFiles) -> Iterator[_Seen]:
        for folder in self._folders:
            exists = True
            try:
                yield from _scan_folder(str(folder), skipped)
            except OSError:
                exists = False
            if not exists and folder not in self._missing:
                self._missing.add(folder)
                self.add_event("lost", f"The folder '{folder}' can no longer be read; it is tried again.")
            elif exists and folder in self._missing:
                self._missing.remove(folder)
                self.add_event("reconnected", f"The folder '{folder}' can be read again.")

    def _complete(self, seen: _Seen, key: str, scans: int) -> Item | None:
        """Return the item of a file, or None if the file is incomplete or was deleted."""
        try:
            image = read_image(seen.path)
        except Error:
            image = None
        try:
            status = os.stat(seen.path)
        except OSError:
            return None
        if (status.st_size, status.st_mtime_ns) != (seen.size, seen.changed) or (image is None and scans < MOST_SCANS):
            return None
        path = Path(seen.path)
        return Item(path if image is None else image, str(path), key, status.st_mtime, path=path)


def _scan_folder(folder: str, skipped: SkippedFiles) -> Iterator[_Seen]:
    """Yield the files below a folder.

    Raise an OSError if `folder` itself cannot be read. Entries that disappear during the scan are skipped.
    """
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
            for entry in skipped.without_output(here, entries):
                try:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif (has_image_name(entry.name) or not entry.name.startswith(".")) and entry.is_file():
                        status = entry.stat()
                        yield _Seen(entry.path, status.st_size, status.st_mtime_ns)
                except OSError:
                    continue


def _is_candidate(path: str) -> bool:
    """Return whether a file is an image, or may become one when it is complete.

    A file with an unknown suffix, such as photo.jpg.part, may be renamed when it is complete; it is not read.
    """
    return has_image_name(path) or (not Path(path).suffix and is_image(Path(path)))
