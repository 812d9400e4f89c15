"""Standard output that cannot be written: the reader of a pipe has ended, or the disk is full."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast

from ..core.types import Error


class ReaderGoneError(Exception):
    """The reader of the output has ended. Not an OSError, because libraries that print handle OSErrors themselves."""


@contextmanager
def guarded_output() -> Iterator[None]:
    """Raise a `ReaderGoneError` or an `Error` inside the block if something printed cannot be written."""
    stdout = sys.stdout
    if stdout is None:  # it was closed before the program started
        with open(os.devnull, "w", encoding="utf-8") as null, redirect_stdout(null):
            yield
        return
    guarded = _GuardedStream(stdout)
    try:
        with redirect_stdout(cast(TextIO, guarded)):
            yield
            guarded.flush()
    except BaseException as problem:
        # After an ordinary exit, lost output is an error. Any other problem came first and is kept.
        with suppress(*() if isinstance(problem, SystemExit) else (Error, ReaderGoneError)):
            guarded.flush()
        raise
    finally:
        if guarded.broken:
            # When Python exits, it flushes the buffer again and would print a message of its own.
            _discard(stdout)


class _GuardedStream:
    """A text stream that raises our exceptions if it cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.broken = stream, False
        with suppress(AttributeError, OSError, ValueError):
            # Characters that the terminal cannot show are escaped.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        with self._translate():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._translate():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self.broken = True
            if isinstance(problem, BrokenPipeError):
                raise ReaderGoneError from None
            reason = problem.strerror or problem
            raise Error(f"The output could not be written ({reason}).", code="output-unwritable") from None


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
