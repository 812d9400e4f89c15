"""Standard output that cannot be written to: a reader that has gone (`| head`), or a full disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast

from ..core.types import Error


class ReaderGoneError(Exception):
    """Nobody reads what is printed any more. Not an OSError, which libraries that print would deal with in ways of their own."""


@contextmanager
def guarded_output() -> Iterator[None]:
    """What is printed inside and cannot be written is a `ReaderGoneError` or an `Error`, wherever it is printed from."""
    real = sys.stdout
    if real is None:
        # Closed before we were started; there is nothing to print to, and nobody to be told.
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            yield
        return
    guarded = _Guarded(real)
    try:
        with redirect_stdout(cast(TextIO, guarded)):
            yield
            guarded.flush()
    except BaseException as problem:
        # An ordinary end (SystemExit) is not one if the output is lost. Any other problem came first and is kept.
        with suppress(*() if isinstance(problem, SystemExit) else (Error, ReaderGoneError)):
            guarded.flush()
        raise
    finally:
        if guarded.broken:
            # What is still in the buffer would fail once more when Python ends, with a message of Python's own.
            _discard(real)


class _Guarded:
    """A text stream whose problems are raised as ours. It is otherwise the stream that it wraps."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.broken = stream, False
        with suppress(AttributeError, OSError, ValueError):
            # A character that the terminal cannot show must not end the program.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        with self._watched():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._watched():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.broken = True
            raise ReaderGoneError from None
        except OSError as problem:
            self.broken = True
            raise Error(
                f"The output could not be written ({problem.strerror or problem}).", code="output-unwritable"
            ) from None


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
