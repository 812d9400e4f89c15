"""Writing a file so that a crash at any moment leaves the old one or the new one, and never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .core.types import Error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; on any failure the old file stays and nothing else is left behind."""
    path = Path(path)
    partial = ""
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as problem:
        if partial and os.path.exists(partial):
            os.unlink(partial)
        raise Error(
            f"{path} could not be written ({problem.strerror or problem}); what was there before is unchanged."
        ) from None
    _sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make an output folder, or say in a sentence why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Error(f"The folder {path} cannot be made ({problem.strerror}).") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
