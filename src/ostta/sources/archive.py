"""A tar archive of images, read one after the other; nothing is unpacked."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ..core.checks import one_line
from ..core.types import Error
from ..data.images import START, is_image_content
from ..io import open_regular
from .files import SkippedFiles, has_image_name
from .item import Item, file_key, missing_item
from .source import Skip, Source

# Bytes of one image.
LARGEST = 256 * 1024 * 1024


class Archive(Source):
    """The images of a .tar, in its order."""

    def __init__(self, path: Path, skip: Skip | None) -> None:
        super().__init__(str(path), skip)
        self._path = path

    def check(self) -> None:
        skipped = SkippedFiles()
        if next(self._members(skipped), None) is None:
            raise Error(f"There are no images in the archive {self._path}.{f' {skipped}' if skipped.count else ''}")

    def __iter__(self) -> Iterator[Item]:
        skipped = SkippedFiles()
        try:
            for archive, member, key in self._members(skipped):
                if self.wanted(key):
                    yield self._item(archive, member, key)
        finally:
            skipped.tell(self)

    def _members(self, skipped: SkippedFiles) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo, str]]:
        """Its images, unread, with their keys."""
        with open_regular(self._path, "archive") as file:
            found = os.fstat(file.fileno())
            key = file_key(self._path, found.st_size, found.st_mtime_ns)
            try:
                # Only what is not compressed: a few compressed bytes may become any number.
                with tarfile.open(fileobj=file, mode="r:") as archive:
                    while (member := archive.next()) is not None:
                        # Else the list of all members grows.
                        cast(Any, archive).members.clear()
                        if member.isreg() and _is_image(archive, member):
                            yield archive, member, f"{key}#{member.offset}"
                        elif member.isreg() and not PurePosixPath(member.name).name.startswith("."):
                            skipped.add(member.name)
            except (tarfile.TarError, OSError, ValueError, EOFError) as problem:
                raise Error(f"The archive '{self._path}' cannot be read (any further): {one_line(problem)}.") from None

    def _item(self, archive: tarfile.TarFile, member: tarfile.TarInfo, key: str) -> Item:
        name = f"{self.name}#{member.name}"
        inside = PurePosixPath(member.name)
        if inside.is_absolute() or ".." in inside.parts:
            return missing_item(name, f"'{member.name}' of the archive {self._path} leads out of it and is not read.")
        if member.size > LARGEST or member.sparse is not None:
            return missing_item(
                name,
                f"'{member.name}' of the archive {self._path} has {member.size} bytes: at most {LARGEST} are read.",
            )
        try:
            content = archive.extractfile(member)
            return Item(b"" if content is None else content.read(), name, key, float(member.mtime))
        except (tarfile.TarError, OSError) as problem:
            return missing_item(
                name, f"'{member.name}' of the archive {self._path} cannot be read: {one_line(problem)}."
            )


def _is_image(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    if has_image_name(member.name):
        return True
    content = None if member.sparse is not None else archive.extractfile(member)
    return content is not None and is_image_content(content.read(START))
