"""What tests read from the project's Markdown pages: links, headings, blocks of code, commands."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "src" / "ostta").rglob("*.md"),
        ROOT / "tests" / "golden" / "README.md",
    ]
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", flags=re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of one language; "" for those that name none."""
    return [text for name, text in _FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def links(page: Path) -> list[str]:
    """The targets of all links and pictures outside blocks of code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return _LINK.findall(prose)


def anchors(page: Path) -> set[str]:
    """What a link may have behind #: the page's headings as the site and the usual viewers of Markdown call them."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in _HEADING.findall(prose)}


def slug(heading: str) -> str:
    """Small letters, no punctuation, hyphens for spaces."""
    words = unicodedata.normalize("NFC", re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading)).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def commands(page: Path) -> Iterator[list[str]]:
    """The calls of `ostta` in a page's blocks of code, as words."""
    for text in blocks(page, ""):
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:\w+=\S+ )*(?:\.venv/bin/)?ostta (?!\[)(.*)", line.strip())
            if found:
                yield shlex.split(found[1].partition("  #")[0].partition(" | ")[0].replace("...", ""), comments=True)
