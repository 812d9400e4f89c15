"""Unpacking an archive so that nothing leaves its folder and nothing half-made gets a final name."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ...core.checks import one_line
from ...core.types import Error
from .addresses import Form

# The bit of a zip entry's flags that says that its content is encrypted.
_ENCRYPTED = 1


def unpack(archive: Path, form: Form, root: Path, makes: tuple[str, ...]) -> None:
    """Put what `makes` names, paths below `root`, where it belongs; members of other names are left in the archive.

    Everything is unpacked beside its place first, so a failure leaves `root` as it was.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as temporary:
            made = {path: Path(temporary, PurePosixPath(path).name) for path in makes}
            if form == "gz":
                with gzip.open(archive, "rb") as source, made[makes[0]].open("wb") as target:
                    shutil.copyfileobj(source, target)
            else:
                _extract(archive, form, Path(temporary), {path.name for path in made.values()})
            for path, place in made.items():
                if not place.exists():
                    raise Error(
                        f"The archive '{archive}' holds no '{place.name}', which should become '{root / path}'."
                    )
            for path, place in made.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                if not (root / path).exists():
                    os.replace(place, root / path)
    except OSError as problem:
        if problem.errno == errno.ENOSPC:
            raise Error(
                f"The disk of '{root}' is full, so '{archive.name}' is not unpacked; it is kept: make room and run this again."
            ) from problem
        raise Error(f"The archive '{archive}' cannot be unpacked: {one_line(problem)}.") from problem
    except Error:
        raise
    except Exception as problem:  # the libraries raise nearly every kind on a damaged archive
        raise Error(
            f"The archive '{archive}' is damaged: {one_line(problem)}; delete it and run this again."
        ) from problem


def _extract(archive: Path, form: Form, folder: Path, wanted: set[str]) -> None:
    for name, content in _tar_files(archive) if form == "tar" else _zip_files(archive):
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\\" in name or ":" in name:
            raise Error(f"The archive '{archive}' is not safe to unpack: it holds the path {name!r}.")
        if not parts or parts[0] not in wanted:
            continue
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)


def _tar_files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isdir():
                continue
            content = opened.extractfile(member) if member.isreg() else None
            if content is None:
                raise Error(f"The archive '{archive}' is not safe to unpack: {member.name!r} is a link or a device.")
            yield member.name.removeprefix("./"), content


def _zip_files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if not member.is_dir():
                yield member.filename.removeprefix("./"), _content(opened, member, archive)


def _content(opened: zipfile.ZipFile, member: zipfile.ZipInfo, archive: Path) -> IO[bytes]:
    if member.flag_bits & _ENCRYPTED:
        raise Error(f"The archive '{archive}' cannot be unpacked: {member.filename!r} in it is encrypted.")
    try:
        return opened.open(member)
    except (NotImplementedError, RuntimeError) as problem:  # a method of compression or an option of later times
        raise Error(
            f"The archive '{archive}' cannot be unpacked: {member.filename!r} in it: {one_line(problem)}."
        ) from problem
