"""Turn exceptions of other libraries into `ostta.Error`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .types import Error

# Messages of other libraries can be pages long.
_MOST_CHARACTERS = 200


@contextmanager
def translate_errors(code: str, message: str, *kinds: type[Exception], error: type[Error] = Error) -> Iterator[None]:
    """Raise `error` with this message and code for every exception of one of `kinds` (by default any) in the block.

    `{reason}` in the message stands for the message of the exception. An `Error` passes through unchanged.

    >>> with translate_errors("number-invalid", "'ten' is not a number: {reason}.", ValueError):
    ...     int("ten")
    Traceback (most recent call last):
    ostta.core.types.Error: 'ten' is not a number: invalid literal for int() with base 10: 'ten'.
    """
    try:
        yield
    except Error:
        raise
    except kinds or (Exception,) as problem:  # noqa: B030
        raise error(message.replace("{reason}", reason_of(problem)), code=code) from problem


def reason_of(problem: BaseException) -> str:
    """Return the message of an exception on one line, shortened and without its final period.

    >>> reason_of(OSError(2, "No such file or directory", "a.txt")), reason_of(KeyError())
    ('No such file or directory', 'KeyError')
    """
    text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return " ".join(text.split())[:_MOST_CHARACTERS].rstrip(". ") or type(problem).__name__


def import_extra(module: str, purpose: str, extra: str) -> Any:
    """Import a module of an optional dependency; `extra` names the extra of ostta that installs it.

    >>> import_extra("absent.io", "Reading tables", "bench")
    Traceback (most recent call last):
    ostta.core.types.Error: Reading tables needs the library absent: install it with `pip install "ostta[bench]"`.
    """
    library = module.partition(".")[0]
    message = f'{purpose} needs the library {library}: install it with `pip install "ostta[{extra}]"`.'
    with translate_errors("library-missing", message, ImportError):
        return importlib.import_module(module)


@contextmanager
def error_context(message: str) -> Iterator[None]:
    """Put `message` before every `Error` of the block; the code stays.

    >>> with error_context("a.ostta cannot be restored"):
    ...     raise Error("The hash is wrong.", code="state-damaged")
    Traceback (most recent call last):
    ostta.core.types.Error: a.ostta cannot be restored: the hash is wrong.
    """
    try:
        yield
    except Error as problem:
        text = str(problem).rstrip(".")
        # A sentence continues in lower case, unless it begins with a name.
        start = text[:1].lower() if text[1:2].islower() or text[1:2] == " " else text[:1]
        raise type(problem)(f"{message}: {start}{text[1:]}.", code=problem.code) from None
