"""Suggest a shipped backbone for a list of class names, as `--backbone auto` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.text import counted
from ..core.types import Error
from .embedded import embedded_names
from .photos.names import load_names

AUTO = "auto"
# Backbone for class names that `photos` does not know.
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
    """Return the shipped backbone for class names: `photos`.

    Raise an Error if `photos` does not know all names. Set `described` if the classes have descriptions, which `photos`
    does not support. The small backbone `embedded` is never chosen for the user.

    >>> suggest(["dog", "elephant"]).backbone
    'photos'
    """
    names = load_names()
    unknown = [name for name in classes if names.find(name) is None]
    if not unknown and not described:
        meanings = {name: _meaning(name) for name in classes}
        reason = f"it is made for photographs and knows {_all_names(classes)}"
        return Suggestion("photos", reason, {name: text for name, text in meanings.items() if text})
    problem = names.unknown(unknown)
    if described:
        problem = f"The backbone photos reads no descriptions: give names only, or use a CLIP such as {CLIP}."
    known = embedded_names()
    if all(name.lower().replace("_", " ") in known for name in classes):
        problem += ' The backbone "embedded", for images of 32 pixels, knows all class names.'
    raise Error(problem, code="class-unknown")


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
