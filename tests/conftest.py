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


# What skipped tests would have checked, by words in the reasons for skipping them.
_NOT_CHECKED = {
    "pages in a browser (Chromium with Playwright is missing)": ("chromium", "playwright"),
    "sessions in a PostgreSQL database (PostgreSQL is missing)": ("postgres",),
    "figures of the paper, the full recording, real features (../shared is missing)": ("beside the project",),
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line about what was not checked because Chromium, PostgreSQL or the shared data are missing."""
    reasons = [report.longrepr[2].casefold() for report in terminalreporter.stats.get("skipped", ())]
    lost = {
        what: sum(any(word in reason for word in words) for reason in reasons) for what, words in _NOT_CHECKED.items()
    }
    listed = [f"{what}: {count} skipped" for what, count in lost.items() if count]
    if listed:
        terminalreporter.write_line(f"Not checked: {'; '.join(listed)}.")
