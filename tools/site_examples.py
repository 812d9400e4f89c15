"""Examples in docstrings as blocks of code on the site.

Griffe leaves `>>>` in prose to Markdown, which makes quotations of it.
"""

from __future__ import annotations

import textwrap
from typing import Any

import griffe


def fenced(docstring: str) -> str:
    """The docstring with each example, from `>>>` to the next empty line, as a block of code.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    parts = []
    for paragraph in textwrap.dedent(docstring).split("\n\n"):
        lines = paragraph.split("\n")
        first = next((number for number, line in enumerate(lines) if line.startswith(">>> ")), None)
        if first is None:
            parts.append(paragraph)
            continue
        before = "\n".join(lines[:first])
        parts += [before] if before else []
        parts.append("\n".join(["```pycon", *lines[first:], "```"]))
    return "\n\n".join(parts)


class RunnableExamples(griffe.Extension):
    """Rewrites the docstring of every object that is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
