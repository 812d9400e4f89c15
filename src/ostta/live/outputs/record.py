"""`pictures.jsonl`: the pictures that a stream has written to its output folder, with row, path and size."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ...core.errors import translate_errors
from ...core.types import Error
from ...io import make_folder, parse_json
from ...sources.files import PICTURES, RECORD

# Maximum number of drawn pictures; the oldest are deleted.
MOST_DRAWN = 10_000
# Entries in memory: a row has at most two pictures, and drawn pictures are looked up after MOST_DRAWN rows.
MOST_ENTRIES = 3 * MOST_DRAWN
# Files that `ostta sort` records too, because its next run replaces them; any size is valid until they are finished.
RESULTS, ANY_SIZE = ("predictions.csv", "predictions.parquet", "report.html"), -1


class PictureRecord:
    """Writes the pictures of an output folder, and removes only files that it has written.

    A picture is recorded before it is written, so that a crash leaves no unrecorded picture. A file with another size
    than the recorded one belongs to somebody else.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        """Read the entries of the rows above `after`."""
        self._folder, self._path = folder, folder / RECORD
        # Row and size by path.
        self._entries: dict[str, tuple[int, int]] = {}
        # The last picture is incomplete if the process was killed while it was written.
        self._last = ""
        failure = translate_errors("output-unreadable", f"{self._path} cannot be read ({{reason}}).", OSError)
        with failure, suppress(FileNotFoundError), open(self._path, "rb") as file:
            for line in file:
                # A line that is cut off makes its picture a file of somebody else.
                with suppress(ValueError, KeyError, TypeError):
                    entry = parse_json(line)
                    row, name, size = int(entry["row"]), str(entry["file"]), int(entry["size"])
                    parts = PurePosixPath(name).parts
                    if name in RESULTS or (row > after and parts[0] in PICTURES and ".." not in parts):
                        self._entries[name], self._last = (row, size), "" if name in RESULTS else name

    def own_files(self) -> set[Path]:
        """Return the recorded files that nobody has changed, and the record itself if it has the results."""
        own = {self._folder / name for name in self._entries if self._is_own(name)}
        return own | ({self._path} if any(name in self._entries for name in RESULTS) else set())

    def restart(self) -> None:
        """Remove all recorded files, and begin a new record with the results that will be written."""
        make_folder(self._folder)
        for path in [self._folder / name for name in self._entries]:
            self.remove(path)
            if path.parent != self._folder:
                with suppress(OSError):  # other files are in the folder
                    path.parent.rmdir()
        self._path.unlink(missing_ok=True)
        self._last = ""
        self.add_results(finished=False)

    def add_results(self, *, finished: bool) -> None:
        """Record the results, with their sizes if they are finished."""
        for name in RESULTS:
            self._note(0, name, _size(self._folder / name) if finished else ANY_SIZE)

    def check(self, last: int) -> None:
        """Raise an Error if a picture of a row after `last` was replaced by another file."""
        for name, (row, _) in self._entries.items():
            path = self._folder / name
            if row > last and os.path.lexists(path) and not self._is_own(name):
                raise foreign(path)

    def forget(self, last: int) -> None:
        """Remove the pictures of the rows after `last`, which are processed again after a crash."""
        for name in [name for name, (row, _) in self._entries.items() if row > last]:
            self.remove(self._folder / name)

    def remove(self, path: Path) -> None:
        """Remove a recorded picture."""
        name = self._name(path)
        if self._is_own(name):
            with suppress(OSError):
                path.unlink()
        self._entries.pop(name, None)

    def add(self, row: int, path: Path, content: bytes | Path) -> None:
        """Write a picture, or a link to a file. Raise an Error if there is a file of somebody else."""
        name = self._name(path)
        size = len(content) if isinstance(content, bytes) else len(os.fsencode(content))
        if self._entries.get(name) == (row, size) == (row, _size(path)):
            return
        self.remove(path)
        make_folder(path.parent)
        with translate_errors("file-not-written", f"{path} could not be written ({{reason}}).", OSError):
            if os.path.lexists(path):
                raise foreign(path)
            self._note(row, name, size)
            if isinstance(content, Path):
                path.symlink_to(content)
            else:
                with open(path, "xb") as file:
                    file.write(content)
        while len(self._entries) > MOST_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def _note(self, row: int, name: str, size: int) -> None:
        with open(self._path, "ab") as file:
            file.write(json.dumps({"row": row, "file": name, "size": size}).encode() + b"\n")
        self._entries[name] = (row, size)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _is_own(self, name: str) -> bool:
        if name not in self._entries:
            return False
        size, found = self._entries[name][1], _size(self._folder / name)
        return found == size or (found >= 0 and (size == ANY_SIZE or (name == self._last and found < size)))


def foreign(path: Path) -> Error:
    """Return the error for a file that is where a stream would write and that it has not written."""
    return Error(f"{path} was not written by this stream: move it, or give another folder.", code="output-mismatch")


def _size(path: Path) -> int:
    """Return the size of a file, or of the target of a link; -2 if there is none."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return -2
