"""Adapters are made without a word on stderr: what they warn of is in the session's JSON, as `unfamiliar`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Filters of warnings are the process's: two threads that change them at once would leave them changed.
_LOCK = threading.Lock()


@contextmanager
def quietly() -> Iterator[None]:
    """A block of one thread at a time, in which nothing is warned of."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
