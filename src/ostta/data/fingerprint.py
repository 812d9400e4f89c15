"""Fingerprints of files: whether a file still has the content that a run saw.

A fingerprint depends on the size and the bytes of a file, not on its name, folder or modification time, so copies of a data set on
several machines have the same fingerprints.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from ..core.types import Error
from ..io import open_regular

# A file of up to BLOCKS * BLOCK_SIZE bytes is read in full; of a larger one, this many blocks at equal distances.
BLOCKS, BLOCK_SIZE = 16, 4096


def file_fingerprint(path: Path) -> str:
    """Return a hash of the size and the content of a file, or "unreadable".

    At most 64 KiB are read. Fingerprints are cached until the file's size or modification time changes.
    """
    try:
        status = os.stat(path)
        return _fingerprint(os.fspath(path), status.st_size, status.st_mtime_ns)
    except (OSError, ValueError, Error):
        # The run that needs the file reports what is wrong with it.
        return "unreadable"


def folder_fingerprint(folder: Path) -> str:
    """Return a hash of the relative paths and the fingerprints of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = os.fsencode(path.relative_to(folder).as_posix())
        digest.update(name + b"\0" + file_fingerprint(path).encode() + b"\0")
    return digest.hexdigest()


@lru_cache(maxsize=2**17)
def _fingerprint(path: str, size: int, modified: int) -> str:
    digest = hashlib.sha256(str(size).encode() + b"\0")
    with open_regular(Path(path), "file of a data set") as file:
        if size <= BLOCKS * BLOCK_SIZE:
            digest.update(file.read(BLOCKS * BLOCK_SIZE))
        else:
            for number in range(BLOCKS):
                file.seek(number * (size - BLOCK_SIZE) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_SIZE))
    return digest.hexdigest()
