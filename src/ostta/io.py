"""Writing a file, or a folder, so that a crash at any moment leaves the old or the new one, and never half of one; and what is read."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .core.types import Error

# The environment variable with the folder of the data sets.
ROOT_VARIABLE = "OSTTA_DATA"
# Seconds after which no living process can still be writing a file that it has begun.
STALE = 600.0


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; on any failure the old file stays and nothing else is left behind.

    Only a process that is killed leaves something, a `.partial` file; a later write to the same `path` takes it away.
    """
    path = Path(path)
    # Named before it is made: whatever interrupts from here on, it is known what to take away.
    partial = _partial(path)
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as problem:
        with suppress(OSError, ValueError):
            os.unlink(partial)
        if not isinstance(problem, OSError | ValueError):
            raise
        reason = getattr(problem, "strerror", None) or problem
        raise Error(f"{path} could not be written ({reason}); what was there before is unchanged.") from None
    _sync_folder(path.parent)
    _remove_leftovers(path)


@contextmanager
def file_in_one_step(path: Path) -> Iterator[Path]:
    """A name for a file to be written inside the block, which takes the place of `path` at its end; for what is too large for memory."""
    partial = _partial(path)
    try:
        yield partial
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    except BaseException as problem:
        with suppress(OSError):
            os.unlink(partial)
        if not isinstance(problem, OSError):
            raise
        reason = problem.strerror or problem
        raise Error(f"{path} could not be written ({reason}); what was there before is unchanged.") from None
    _sync_folder(path.parent)
    _remove_leftovers(path)


@contextmanager
def folder_in_one_step(path: Path) -> Iterator[Path]:
    """An empty folder to fill with files, which takes the place of `path` at the end of the block.

    If the block raises, nothing is left of it, and `path` is what it was. A process that is killed leaves a `.partial` folder.
    """
    make_folder(path.parent)
    partial, old = _partial(path), _partial(path)
    try:
        partial.mkdir()
        yield partial
        for file in partial.iterdir():
            with open(file, "rb") as written:
                os.fsync(written.fileno())
        _sync_folder(partial)
        if path.exists():  # a folder that is not empty cannot be replaced in one step
            os.replace(path, old)
        os.replace(partial, path)
    except BaseException as problem:
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(partial, ignore_errors=True)
        if not isinstance(problem, OSError):
            raise
        raise Error(f"{path} could not be written ({problem.strerror}); what was there before is unchanged.") from None
    shutil.rmtree(old, ignore_errors=True)
    _sync_folder(path.parent)
    _remove_leftovers(path)


def make_folder(path: Path) -> None:
    """Make an output folder, or say in a sentence why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Error(f"The folder {path} cannot be made ({problem.strerror}).") from None


def read_regular(path: Path) -> bytes:
    """The content of an ordinary file; a pipe or a device of that name is an Error, as reading it might never end."""
    if path.exists() and not path.is_file():
        raise Error(f"{path} is not an ordinary file.")
    return path.read_bytes()


def given_root(root: Path | None) -> Path | None:
    """The folder of the data sets: `root`, else the environment variable, else none."""
    given = root if root is not None else os.environ.get(ROOT_VARIABLE)
    return Path(given).expanduser() if given else None


def path_from_root(path: Path, folder: Path | None = None) -> Path:
    """`path` from the root, however it was written; a relative one is meant from `folder`, or from the current one."""
    path = (folder or Path()) / Path(os.path.expanduser(path))
    # Only the file system knows what is above a folder that may be a link; otherwise no file is looked at.
    return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()


def parse_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """What `json.loads` gives; nesting that is too deep is a ValueError too, like every other mistake in the text.

    `pairs` makes an object of its names and values; without it, the last value of a name counts.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_unicode(text: str) -> bool:
    """Whether `text` can be written to a file; a lone half of a surrogate pair cannot."""
    return readable(text) == text


def readable(text: str) -> str:
    """A file name, or a sentence with one, as text that can be written everywhere: bytes that are no UTF-8 become U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _partial(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.partial"


def _remove_leftovers(path: Path) -> None:
    """Take away what killed processes were writing in the place of `path`; what is young may be another process's."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(".partial"):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime <= STALE:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path)
                    else:
                        os.unlink(entry.path)


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
