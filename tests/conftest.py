"""What the command line of pytest takes here beside its own options."""

from __future__ import annotations

import gc

import pytest

# There is another file of this name, in src, and as places to look for examples the two would get into each other's way.
collect_ignore = ["conftest.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="pretended",
        help="Where the tests marked `device` run: cuda, mps; a pretended one if not given.",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported and collected by now out of every later look at all objects: a million references, of which the
    measure of leaks counts all, six times each. What is made later is counted as ever, wherever it is kept; only a plain number or an
    array that is put into a container of an imported module is not, and `tests/test_leaks.py` counts everything.
    """
    gc.collect()
    gc.freeze()
