"""The class names that ship: label order is theirs, and so is the folder that each class has on the disk."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .class_names import spoken

_FILE = Path(__file__).parent / "class_lists.json"


class ClassList(NamedTuple):
    """Names as they are said in a prompt, and the folder names that stand for them, both in label order."""

    names: tuple[str, ...]
    folders: tuple[str, ...]


@lru_cache(maxsize=16)
def class_list(name: str) -> ClassList:
    """The list called `name` in class_lists.json; "imagenet_r_newer" has ImageNet's present names for ImageNet-R.

    >>> class_list("visda").names[:3]
    ('aeroplane', 'bicycle', 'bus')
    """
    entries = _lists()[name.removesuffix("_newer")]
    if name == "imagenet":
        return ClassList(tuple(entry[1] for entry in entries), tuple(entry[0] for entry in entries))
    by_wnid = imagenet_names() | _lists().get(f"{name}_published", {})
    return ClassList(tuple(by_wnid.get(entry, spoken(entry)) for entry in entries), tuple(entries))


@lru_cache(maxsize=1)
def imagenet_names() -> dict[str, str]:
    """The name of each of ImageNet's 1,000 classes, by WordNet id."""
    return dict(_lists()["imagenet"])


@lru_cache(maxsize=1)
def _lists() -> Any:
    return json.loads(_FILE.read_text(encoding="utf-8"))
