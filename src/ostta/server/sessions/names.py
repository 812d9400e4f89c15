"""Checks of texts that clients send: names of sessions, class names, descriptions."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from ...core.checks import shown
from ...core.types import Error
from ...io import is_unicode

MOST_NAME = 200
# The most characters of a class name or a description.
MOST_TEXT = 500
# Invisible characters that `str.isprintable` accepts: fillers and variation selectors.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def checked_name(name: Any) -> str:
    """Return the name of a session without surrounding spaces."""
    if not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME or not is_unicode(name):
        raise Error(
            f"The name of a session is a text of at most {MOST_NAME} characters, not {shown(name)}.",
            code="name-invalid",
        )
    _require_visible(name, "The name of a session")
    return name.strip()


def checked_classes(classes: Any) -> list[str] | dict[str, list[str]]:
    """Return class names, or class names with descriptions, without surrounding spaces."""
    if not isinstance(classes, list | dict) or not classes:
        raise Error(
            f"`classes` is a list of names, or an object from names to descriptions, not {shown(classes)}.",
            code="classes-invalid",
        )
    seen: dict[str, str] = {}
    for name in classes:
        if not checked_text(name, "classes").strip():
            raise Error(
                f"`classes` takes texts of at most {MOST_TEXT} characters, not {shown(name)}.", code="classes-invalid"
            )
        _require_visible(name, "A class name")
        look = unicodedata.normalize("NFKC", _INVISIBLE.sub("", name)).strip()
        if look in seen:
            raise Error(
                f"The class names {shown(seen[look])} and {shown(name)} look the same: give each class its own name.",
                code="classes-invalid",
            )
        seen[look] = name
    if isinstance(classes, list):
        return [name.strip() for name in classes]
    for texts in classes.values():
        for text in texts if isinstance(texts, list) else ():
            _require_visible(checked_text(text, "classes"), "A description")
    return {name.strip(): texts for name, texts in classes.items()}


def checked_text(value: Any, name: str) -> str:
    """Return a text that may be used as a name; `name` is the field that it was sent in."""
    if not isinstance(value, str) or not value or len(value) > MOST_TEXT or not is_unicode(value):
        raise Error(f"`{name}` takes texts of at most {MOST_TEXT} characters, not {shown(value)}.", code="text-invalid")
    return value


def _require_visible(text: str, what: str) -> None:
    """Refuse line breaks, control characters and marks that change the direction of writing."""
    if not text.isprintable():
        raise Error(f"{what} is one line of visible characters, not {shown(text)}.", code="text-invalid")
