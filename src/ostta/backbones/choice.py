"""Suggest a shipped backbone for a list of class names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.text import counted
from ..core.types import Error
from .embedded import embedded_names
from .photos.names import load_names

AUTO = "auto"
# Backbone for class names that no shipped backbone supports.
CLIP = "openai/clip-vit-base-patch16"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested backbone, the reason, and the meaning of class names that are not ImageNet classes.

    >>> suggest(["mouse"]).meanings
    {'mouse': 'the ImageNet class computer mouse'}
    """

    backbone: str
    reason: str
    meanings: dict[str, str]


def suggest(classes: Sequence[str], described: bool = False) -> Suggestion:
    """Return the shipped backbone that supports all class names: `photos`, otherwise `embedded`.

    Raise an Error if neither supports them. Set `described` if the classes have descriptions, which `photos` does not
    support.

    >>> suggest(["dog", "elephant"]).backbone, suggest(["cat", "deer"]).backbone
    ('photos', 'embedded')
    """
    names = load_names()
    unknown = [name for name in classes if names.find(name) is None]
    if not unknown and not described:
        meanings = {name: _meaning(name) for name in classes}
        reason = f"it is made for photographs and knows {_all_names(classes)}"
        return Suggestion("photos", reason, {name: text for name, text in meanings.items() if text})
    known = embedded_names()
    unknown_too = [name for name in classes if name.lower().replace("_", " ") not in known]
    if not unknown_too:
        why = "photos reads no descriptions" if described else f"photos does not know {unknown[0]!r}"
        return Suggestion("embedded", f"it knows {_all_names(classes)}, for images of 32 pixels; {why}", {})
    near = [] if described else names.near(unknown[0])
    offer = f" For photos, use a near name such as {', '.join(near)}." if near else ""
    raise Error(
        f"None of the backbones that ship knows all class names: photos lacks {_first(unknown)}, embedded lacks "
        f'{_first(unknown_too)}.{offer} A CLIP reads any name: pip install "ostta[clip]", then --backbone {CLIP}.',
        code="backbone-none",
    )


def _meaning(name: str) -> str:
    """Describe the ImageNet classes that a name covers. Return "" if the name is itself an ImageNet class."""
    names = load_names()
    numbers, titles = names.classes(name), names.class_titles
    if len(numbers) > 1:
        return f"{len(numbers)} ImageNet classes, such as {titles[numbers[0]]} and {titles[numbers[1]]}"
    title = titles[numbers[0]]
    return "" if title.lower() == name.lower().replace("_", " ") else f"the ImageNet class {title}"


def _all_names(classes: Sequence[str]) -> str:
    return "the one class name" if len(classes) == 1 else f"all {counted(len(classes), 'class name')}"


def _first(names: Sequence[str]) -> str:
    return repr(names[0]) if len(names) == 1 else f"{names[0]!r} and {len(names) - 1} more" if names else "descriptions"
