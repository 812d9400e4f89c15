"""Atomic writes and safe reads of files and folders.

A crash during a write leaves the old content or the new content, never a mixture.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .core.errors import reason_of, translate_errors
from .core.types import Error

# Environment variable with the folder of the data sets.
ROOT_VARIABLE = "OSTTA_DATA"
# Age in seconds after which a partial file is certain to be a leftover of a killed process.
STALE = 600.0

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


# --- writing ----------------------------------------------------------------------------------------------------------
def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; if the write fails, the old file stays and no partial file remains.

    A killed process leaves a `.partial` file, which a later write to the same `path` removes.
    """
    # A path with a null byte raises a ValueError.
    invalid_name = translate_errors("file-not-written", f"{path} could not be written ({{reason}}).", ValueError)
    with invalid_name, file_in_one_step(Path(path)) as partial, open(partial, "xb") as file:
        file.write(content)


@contextmanager
def file_in_one_step(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary file to write, which replaces `path` when the block ends."""
    partial = _partial(path)

    def remove() -> None:
        with suppress(OSError, ValueError):
            os.unlink(partial)

    with _replacing(path, remove):
        yield partial
        _sync_file(partial)
        os.replace(partial, path)


@contextmanager
def folder_in_one_step(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill with files, which replaces `path` when the block ends.

    If the block raises, the temporary folder is removed and `path` is unchanged.
    """
    make_folder(path.parent)
    partial, old = _partial(path), _partial(path)

    def restore() -> None:
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(partial, ignore_errors=True)

    with _replacing(path, restore):
        partial.mkdir()
        yield partial
        for file in partial.iterdir():
            _sync_file(file)
        _sync_folder(partial)
        if path.exists():  # os.replace cannot replace a folder that is not empty
            os.replace(path, old)
        os.replace(partial, path)
    shutil.rmtree(old, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Create an output folder and its parents."""
    with translate_errors("file-not-written", f"The folder {path} cannot be created ({{reason}}).", OSError):
        path.mkdir(parents=True, exist_ok=True)


# --- reading ----------------------------------------------------------------------------------------------------------
def check_regular(path: Path, what: str) -> None:
    """Raise an Error unless `path` is a regular file or a link to one; `what` names its role, such as "image file".

    Reading a pipe, a socket or a device may never end, and even opening some devices has an effect.
    """
    with translate_errors("file-unreadable", f"The {what} '{path}' cannot be opened: {{reason}}.", OSError, ValueError):
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            raise Error(f"There is no {what} '{path}'.", code="file-not-found") from None
    _check_mode(mode, path, what)


def open_regular(path: Path, what: str) -> IO[bytes]:
    """Open a regular file for reading. A pipe that replaced the file after the check is also rejected."""
    check_regular(path, what)
    with translate_errors("file-unreadable", f"The {what} '{path}' cannot be opened: {{reason}}.", OSError, ValueError):
        # If the path became a pipe since the check, opening it without O_NONBLOCK would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(os.fstat(handle).st_mode, path, what)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, what: str) -> bytes:
    """Return the content of a regular file."""
    with (
        open_regular(path, what) as file,
        translate_errors("file-unreadable", f"The {what} '{path}' cannot be read: {{reason}}.", OSError),
    ):
        return file.read()


def data_folder(root: Path | None) -> Path | None:
    """Return the folder of the data sets: `root`, otherwise the value of the environment variable, otherwise None."""
    folder = root if root is not None else os.environ.get(ROOT_VARIABLE)
    return Path(folder).expanduser() if folder else None


def absolute_path(path: Path, folder: Path | None = None) -> Path:
    """Return `path` as an absolute path; a relative path starts from `folder`, by default the current folder."""
    path = (folder or Path()) / Path(os.path.expanduser(path))
    # The meaning of ".." after a link depends on the file system. Without "..", the file system is not accessed.
    return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()


def parse_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse JSON. Nesting that is too deep raises a ValueError, like any other invalid text.

    `pairs` builds an object from its names and values; by default the last value of a duplicate name is used.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_unicode(text: str) -> bool:
    """Return whether `text` can be encoded; text with a lone surrogate cannot."""
    return readable(text) == text


def readable(text: str) -> str:
    """Replace lone surrogates, which stand for invalid bytes in file names, by U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


# --- helpers ----------------------------------------------------------------------------------------------------------
@contextmanager
def _replacing(path: Path, undo: Callable[[], None]) -> Iterator[None]:
    """Undo a write that fails or is interrupted, and make a completed write durable."""
    try:
        yield
    except BaseException as problem:
        undo()
        if not isinstance(problem, OSError):
            raise
        message = f"{path} could not be written ({reason_of(problem)}); the previous content is unchanged."
        raise Error(message, code="file-not-written") from None
    _sync_folder(path.parent)
    _remove_leftovers(path)


def _partial(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.partial"


def _remove_leftovers(path: Path) -> None:
    """Remove partial files of killed processes; a recent one may belong to a running process."""
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


def _sync_file(path: Path) -> None:
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, on systems that can open a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _check_mode(mode: int, path: Path, what: str) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        problem = f"'{path}' is a folder: give the path of one {what}."
    else:
        kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
        problem = f"'{path}' is {kind}: {'an' if what[0] in 'aeiou' else 'a'} {what} must be a regular file."
    raise Error(problem, code="file-not-regular")
