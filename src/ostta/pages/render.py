"""From the parts of a page to one HTML file."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .parts import Page

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def html_page(page: Page) -> str:
    """One file that needs no other.

    >>> text = html_page(Page("cats & dogs", "a trial", ["Nothing yet; try `ostta demo`."]))
    >>> "<h1>cats &amp; dogs</h1>" in text, "<code>ostta demo</code>" in text
    (True, True)
    """
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=[section for section in page.sections if section],
            style=(TEMPLATES / "style.css").read_text(encoding="utf-8"),
            script=script,
            # No other script runs, whatever a class or a file is called, and nothing is fetched.
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        )
    )


def sentence(text: str) -> str:
    """Escaped; what stands between backquotes is a command.

    >>> sentence("try `ostta demo`")
    'try <code>ostta demo</code>'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"sentence": sentence}
    made.filters.update(filters)
    return made
