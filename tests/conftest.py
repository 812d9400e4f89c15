"""Options and hooks of pytest."""

from __future__ import annotations

import gc

import pytest

# There is another file of this name, in src, and as places to look for examples the two would get into each other's
# way.
collect_ignore = ["conftest.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="pretended",
        help="Where the tests marked `device` run: cuda, mps; a pretended one if not given.",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude everything that is imported and collected so far from garbage collection.

    The tests for leaks count all tracked objects several times, and a million objects of imported modules would make
    them slow. Objects that are created later are counted. `tests/core/test_leaks.py` counts everything.
    """
    gc.collect()
    gc.freeze()
