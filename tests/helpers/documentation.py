"""Links, headings, code blocks and commands in the Markdown pages of the project."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from helpers.paths import ROOT, TESTS

DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "src" / "ostta").rglob("*.md"),
        TESTS / "golden" / "README.md",
    ]
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", flags=re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of one language; "" selects blocks without a language."""
    return [text for name, text in _FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def links(page: Path) -> list[str]:
    """Return the targets of all links and images outside code blocks."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return _LINK.findall(prose)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in _HEADING.findall(prose)}


def slug(heading: str) -> str:
    """Convert a heading to lower case, without punctuation, with hyphens for spaces."""
    words = unicodedata.normalize("NFC", re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading)).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def commands(page: Path) -> Iterator[list[str]]:
    """Return the calls of `ostta` in the code blocks of a page, split into words."""
    for text in blocks(page, ""):
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:\w+=\S+ )*(?:\.venv/bin/)?ostta (?!\[)(.*)", line.strip())
            if found:
                yield shlex.split(found[1].partition("  #")[0].partition(" | ")[0].replace("...", ""), comments=True)
