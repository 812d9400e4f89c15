"""Opening a file that a person named: a regular file, or a sentence at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from .core.types import Error

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: Path, what: str) -> None:
    """Raise an Error unless `path` is a regular file or a link to one; `what` says what it should be, such as "image file".

    Reading a pipe, a socket or a device may wait for ever, and opening some devices already does something.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise Error(f"There is no {what} '{path}'.") from None
    except (OSError, ValueError) as problem:
        raise Error(f"The {what} '{path}' cannot be opened: {problem}.") from problem
    _check_mode(mode, path, what)


def open_regular(path: Path, what: str) -> IO[bytes]:
    """`path` for reading, after `check_regular`. What was put in its place in the meantime is refused too, without waiting."""
    check_regular(path, what)
    try:
        # Where the path has become a pipe since the check, opening it without O_NONBLOCK would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as problem:
        raise Error(f"The {what} '{path}' cannot be opened: {problem}.") from problem
    try:
        _check_mode(os.fstat(handle).st_mode, path, what)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, what: str) -> bytes:
    """The whole content of `path`."""
    with open_regular(path, what) as file:
        try:
            return file.read()
        except OSError as problem:
            raise Error(f"The {what} '{path}' cannot be read: {problem}.") from problem


def _check_mode(mode: int, path: Path, what: str) -> None:
    if stat.S_ISDIR(mode):
        raise Error(f"'{path}' is a folder: give the path of one {what}.")
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise Error(f"'{path}' is {kind}: only a regular file is read as {_article(what)}.")


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"
