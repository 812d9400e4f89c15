"""Unpack archives without path traversal and without incomplete files under their final names."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ..core.errors import reason_of, translate_errors
from ..core.types import Error
from .addresses import Form

# Flag bit of an encrypted zip entry.
_ENCRYPTED = 1
_DAMAGED = "archive-damaged"


def unpack(archive: Path, form: Form, root: Path, makes: tuple[str, ...]) -> None:
    """Unpack the members listed in `makes`, which are paths below `root`. Other members are skipped.

    Members are first unpacked into a temporary folder, so a failure leaves `root` unchanged.
    """
    # The libraries raise many types of exceptions for damaged archives.
    message = f"The archive '{archive}' is damaged: {{reason}}; delete it and run this again."
    with translate_errors(_DAMAGED, message):
        try:
            _unpack(archive, form, root, makes)
        except OSError as problem:
            if problem.errno == errno.ENOSPC:
                message = f"The disk of '{root}' is full, so '{archive.name}' is not unpacked; it is kept"
                raise Error(f"{message}: free some space and run this again.", code="disk-full") from problem
            message = f"The archive '{archive}' cannot be unpacked: {reason_of(problem)}."
            raise Error(message, code=_DAMAGED) from problem


def _unpack(archive: Path, form: Form, root: Path, makes: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as temporary:
        unpacked = {path: Path(temporary, PurePosixPath(path).name) for path in makes}
        if form == "gz":
            with gzip.open(archive, "rb") as source, unpacked[makes[0]].open("wb") as target:
                shutil.copyfileobj(source, target)
        else:
            _extract(archive, form, Path(temporary), {path.name for path in unpacked.values()})
        for path, place in unpacked.items():
            if not place.exists():
                message = f"The archive '{archive}' has no '{place.name}', which should become '{root / path}'."
                raise Error(message, code=_DAMAGED)
        for path, place in unpacked.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if not (root / path).exists():
                os.replace(place, root / path)


def _extract(archive: Path, form: Form, folder: Path, names: Collection[str]) -> None:
    for name, content in _tar_files(archive) if form == "tar" else _zip_files(archive):
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\\" in name or ":" in name:
            raise _unsafe(archive, f"it contains the path {name!r}")
        if not parts or parts[0] not in names:
            continue
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)


def _unsafe(archive: Path, reason: str) -> Error:
    return Error(f"The archive '{archive}' is not safe to unpack: {reason}.", code="archive-unsafe")


def _tar_files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isdir():
                continue
            content = opened.extractfile(member) if member.isreg() else None
            if content is None:
                raise _unsafe(archive, f"{member.name!r} is a link or a device")
            yield member.name.removeprefix("./"), content


def _zip_files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if not member.is_dir():
                yield member.filename.removeprefix("./"), _content(opened, member, archive)


def _content(opened: zipfile.ZipFile, member: zipfile.ZipInfo, archive: Path) -> IO[bytes]:
    message = f"The archive '{archive}' cannot be unpacked: {member.filename!r} in it"
    if member.flag_bits & _ENCRYPTED:
        raise Error(f"{message} is encrypted.", code=_DAMAGED)
    # Raised for an unknown compression method or option.
    with translate_errors(_DAMAGED, f"{message}: {{reason}}.", NotImplementedError, RuntimeError):
        return opened.open(member)
