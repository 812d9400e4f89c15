"""File sources: an image, a folder, a list with one path per line, a tar archive, or a feature file."""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ..core.checks import shown
from ..core.errors import reason_of, translate_errors
from ..core.text import counted
from ..core.types import Error
from ..data.images import START, ImageFeatures, is_image_content
from ..data.readers.folders import IMAGE_SUFFIXES
from ..feature_files import features_path, read_features
from ..io import open_regular, readable
from .addresses import HTTP, WebImage, check_address, scheme_of, without_password
from .source import Item, Skip, Source, file_item, file_key, missing_item, unreadable

# Maximum line length of a list in bytes; no operating system supports longer paths.
LONGEST_LINE = 65_536
# Control characters that do not occur in text.
NOT_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")
# First bytes of text documents that are not lists of paths, such as SVG images.
MARKUP = (b"<", b"%PDF")
# Maximum number of skipped files that an event names.
NAMED_FILES = 10
# Maximum size of one image in an archive, in bytes.
MAX_BYTES = 256 * 1024 * 1024
# A folder with the file RECORD is the output of `ostta stream` or `ostta sort`, which write pictures to the folders
# PICTURES in it; `ostta sort` also writes FEATURES.
RECORD, PICTURES, FEATURES = "pictures.jsonl", ("sorted", "drawn"), "features.npz"
OUTPUT = {RECORD, FEATURES, "predictions.csv", "predictions.parquet", "report.html", *PICTURES}


def has_image_name(name: str | Path) -> bool:
    """Return whether a file has an image suffix."""
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def is_image(path: Path) -> bool:
    """Return whether a file is an image, judged by its suffix or, for other suffixes, by its content."""
    if has_image_name(path):
        return True
    try:
        with open_regular(path, "image file") as file:
            return is_image_content(file.read(START))
    except (Error, OSError):
        return False


def output_of(path: str) -> Path | None:
    """Return the output folder of `ostta stream` to which a picture, or a folder of pictures, belongs."""
    folders = (folder for folder in (Path(path), *Path(path).parents) if folder.name in PICTURES)
    return next((folder.parent for folder in folders if (folder.parent / RECORD).exists()), None)


class SkippedFiles:
    """Number and first names of the files that were skipped because they are not images, and folders of output."""

    def __init__(self) -> None:
        self.count, self._names = 0, list[str]()
        self.outputs: set[str] = set()

    def __str__(self) -> str:
        sentences = []
        if self.count:
            names = [shown(readable(name)) for name in self._names]
            more = [f"{self.count - len(names)} more"] if self.count > len(names) else []
            files = f"{counted(self.count, 'file')} skipped, not an image by name or content"
            sentences.append(f"{files}: {', '.join(names + more)}.")
        if self.outputs:
            folders = ", ".join(shown(readable(folder)) for folder in sorted(self.outputs)[:NAMED_FILES])
            sentences.append(f"The output of `ostta sort` and `ostta stream` in {folders} was left out.")
        return " ".join(sentences)

    def without_output(self, folder: str, entries: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        """Return the entries of a folder without those that `ostta stream` has written."""
        listed = list(entries)
        if all(entry.name != RECORD for entry in listed):
            return listed
        self.outputs.add(folder)
        return [entry for entry in listed if entry.name not in OUTPUT]

    def add(self, name: str) -> None:
        """Count a file."""
        self.count += 1
        if len(self._names) < NAMED_FILES:
            self._names.append(name)

    def report(self, source: Source) -> None:
        """Add an event to `source` if files were skipped."""
        if sentence := str(self):
            source.add_event("skipped", sentence, {"files": self.count})

    def no_images(self, where: object) -> Error:
        """Return the error for a source without images."""
        return unreadable(f"There are no images in {where}. {self}".rstrip())


class File(Source):
    """One image."""

    def __init__(self, path: Path, skip: Skip | None) -> None:
        super().__init__(str(path), skip)
        self._path = path

    def __iter__(self) -> Iterator[Item]:
        item = file_item(self._path)
        if not self.skips(item.key):
            yield item


class Folder(Source):
    """The images of a folder and its subfolders, sorted by name."""

    def __init__(self, folder: Path, skip: Skip | None) -> None:
        super().__init__(str(folder), skip)
        self._folder = folder

    def check(self) -> None:
        skipped = SkippedFiles()
        first = next(_walk(self._folder, skipped), None)
        if first is None:
            raise skipped.no_images(self._folder)
        if first.problem is not None and first.path == self._folder:
            raise unreadable(first.problem)

    def __iter__(self) -> Iterator[Item]:
        skipped = SkippedFiles()
        try:
            yield from (item for item in _walk(self._folder, skipped) if not self.skips(item.key))
        finally:
            skipped.report(self)


class ImageList(Source):
    """The images of a list with one path or http(s) address per line, from a file or from standard input ("-").

    Empty lines are ignored. Paths need not be UTF-8.
    """

    def __init__(self, source: str, skip: Skip | None) -> None:
        super().__init__(source, skip)
        self.waits = source == "-"
        if source == "-" and sys.stdin is None:
            raise unreadable("There is no standard input to read paths from.")

    def check(self) -> None:
        if self.name == "-":
            return
        with open_regular(Path(self.name), "list of images") as file:
            for line in _lines(file):
                if line is None or NOT_TEXT.search(line) or line.startswith(MARKUP):
                    raise unreadable(f"{self.name} is neither an image nor a text file with one path per line.")

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
                    self.name, f"A line of {self.name} has more than {LONGEST_LINE} bytes and is not a path."
                )
            elif name := os.fsdecode(line).strip():
                item = file_item(Path(name)) if scheme_of(name) is None else _address_item(name)
                if not self.skips(item.key):
                    yield item


class Archive(Source):
    """The images of a .tar file, in archive order. The archive is not unpacked."""

    def __init__(self, path: Path, skip: Skip | None) -> None:
        super().__init__(str(path), skip)
        self._path = path

    def check(self) -> None:
        skipped = SkippedFiles()
        if next(self._members(skipped), None) is None:
            raise skipped.no_images(f"the archive {self._path}")

    def __iter__(self) -> Iterator[Item]:
        skipped = SkippedFiles()
        try:
            for archive, member, key in self._members(skipped):
                if not self.skips(key):
                    yield self._item(archive, member, key)
        finally:
            skipped.report(self)

    def _members(self, skipped: SkippedFiles) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, str]]:
        """Yield the image members and their keys, without reading the images."""
        with open_regular(self._path, "archive") as file:
            status = os.fstat(file.fileno())
            key = file_key(self._path, status.st_size, status.st_mtime_ns)
            message = f"The archive '{self._path}' cannot be read further: {{reason}}."
            failure = translate_errors("source-unreadable", message, tarfile.TarError, OSError, ValueError, EOFError)
            # Accept only uncompressed archives: a few compressed bytes may expand to any size.
            with failure, tarfile.open(fileobj=file, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    # Keep memory constant: `tarfile` stores every member it reads.
                    cast(Any, archive).members.clear()
                    if member.isreg() and _is_image_member(archive, member):
                        yield archive, member, f"{key}#{member.offset}"
                    elif member.isreg() and not PurePosixPath(member.name).name.startswith("."):
                        skipped.add(member.name)

    def _item(self, archive: tarfile.TarFile, member: tarfile.TarInfo, key: str) -> Item:
        name = f"{self.name}#{member.name}"
        inside = PurePosixPath(member.name)
        if inside.is_absolute() or ".." in inside.parts:
            reason = "its path leads out of the archive"
        elif member.size > MAX_BYTES or member.sparse is not None:
            reason = f"it has {member.size} bytes, and at most {MAX_BYTES} are read"
        else:
            try:
                content = archive.extractfile(member)
                return Item(b"" if content is None else content.read(), name, key, float(member.mtime))
            except (tarfile.TarError, OSError) as problem:
                reason = reason_of(problem)
        return missing_item(name, f"'{member.name}' of the archive {self._path} cannot be read: {reason}.")


def _is_image_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    if has_image_name(member.name):
        return True
    content = None if member.sparse is not None else archive.extractfile(member)
    return content is not None and is_image_content(content.read(START))


class StoredFeatures(Source):
    """The rows of the feature file `features:FILE`. Items are named features:FILE#ROW."""

    def __init__(self, name: str, skip: Skip | None) -> None:
        super().__init__(name, skip)
        self._path = features_path(name)

    def check(self) -> None:
        read_features(self._path)

    def __iter__(self) -> Iterator[Item]:
        file = read_features(self._path)
        status = os.stat(self._path)
        key = file_key(self._path, status.st_size, status.st_mtime_ns)
        for row, values in enumerate(file.features):
            if not self.skips(row_key := f"{key}#{row}"):
                yield Item(ImageFeatures(values), f"{self.name}#{row}", row_key)


def _address_item(address: str) -> Item:
    """Return the item for an address in a list."""
    name = without_password(address)
    if scheme_of(address) not in HTTP:
        return missing_item(name, f"{name} cannot be read: addresses in a list must begin with {' or '.join(HTTP)}.")
    try:
        check_address(address)
        return next(iter(WebImage(address)))
    except Error as problem:
        return missing_item(name, str(problem))


def _walk(folder: Path, skipped: SkippedFiles) -> Iterator[Item]:
    """Yield the images of a folder and its subfolders, sorted by name.

    Only the listings of open folders are kept in memory.
    """
    # Iterative, because folders may be nested more deeply than the recursion limit.
    left = [iter([(str(folder), True)])]
    while left:
        path, is_folder = next(left[-1], ("", False))
        if not path:
            left.pop()
        elif is_folder:
            try:
                left.append(iter(_listing(path, skipped)))
            except OSError as problem:
                yield missing_item(path, f"The folder '{path}' cannot be read: {problem.strerror}.", Path(path))
        elif is_image(Path(path)):
            yield file_item(Path(path))
        else:
            skipped.add(os.path.relpath(path, folder))


def _listing(folder: str, skipped: SkippedFiles) -> list[tuple[str, bool]]:
    """Return the sorted entries of a folder and whether each is a folder, without ignored entries."""
    with os.scandir(folder) as entries:
        read = [entry for entry in skipped.without_output(folder, entries) if not _is_ignored(entry)]
        # Like `Path.rglob`, do not follow links to folders, which may be circular.
        items = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in read)
    return [(os.path.join(folder, name), is_folder) for name, is_folder in items]


def _is_ignored(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is ignored: a hidden file such as .DS_Store, or a link to a folder."""
    if has_image_name(entry.name) or entry.is_dir(follow_symlinks=False):
        return False
    return entry.name.startswith(".") or entry.is_dir()


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """Yield the lines, with None for a line that is too long."""
    while line := file.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
        yield None
