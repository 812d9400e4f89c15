"""A browser for tests, with keyboard navigation and the accessibility tree."""

from __future__ import annotations

import re
import shutil
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# What must have a name of its own for those who hear the page.
NAMED = "button|link|textbox|combobox|searchbox|spinbutton|img|table|region|navigation|dialog"


def tab_to(page: Any, role: str, name: str) -> None:
    """Move the focus to an element with the Tab key, and check that the focus is visible."""
    wanted = page.get_by_role(role, name=name, exact=True)
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted.evaluate("node => node === document.activeElement"):
            assert wanted.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
            return
    raise AssertionError(f"the Tab key does not reach {role} {name!r}")


def unnamed(page: Any) -> list[str]:
    """Return the lines of the accessibility tree that have a role but no name."""
    heard = page.locator("body").aria_snapshot().splitlines()
    return [line for line in heard if re.match(rf"\s*- ({NAMED})(:| \[|$)", line)]


def figure(page: Any, name: str) -> Any:
    return page.locator("dl.figures div", has=page.get_by_text(name, exact=True)).locator("dd")
