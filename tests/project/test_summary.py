"""The last line of a test run."""

from __future__ import annotations

import importlib.util
import re
from types import SimpleNamespace

from helpers.paths import TESTS


def test_what_was_not_checked_is_one_line() -> None:
    found = importlib.util.spec_from_file_location("summary", TESTS / "conftest.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)

    def lines(*reasons: str) -> list[str]:
        written: list[str] = []
        reports = [SimpleNamespace(longrepr=("test_x.py", 1, f"Skipped: {reason}")) for reason in reasons]
        module.pytest_terminal_summary(SimpleNamespace(stats={"skipped": reports}, write_line=written.append))
        return written

    assert lines() == lines("only root can mount a disk") == []
    (line,) = lines("no Chromium is installed", "Playwright is not installed", "no PostgreSQL: nothing is installed")
    assert re.findall(r"Chromium|PostgreSQL|shared|\d", line) == ["Chromium", "2", "PostgreSQL", "PostgreSQL", "1"]
