"""What the command line of pytest takes here beside its own options."""

from __future__ import annotations

import pytest

# There is another file of this name, in src, and as places to look for examples the two would get into each other's way.
collect_ignore = ["conftest.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="pretended",
        help="Where the tests marked `device` run: cuda, mps; a pretended one if not given.",
    )
