"""Portable folder and file names from class names and image names."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from ...io import readable

# Folders of rejected images, and of images during the warm-up of the threshold.
UNKNOWN, UNDECIDED = "unknown", "undecided"
# Characters and names that some operating systems forbid or reserve.
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|]')
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?", re.IGNORECASE)
# Maximum name length in bytes. File systems allow 255, and a number may be added.
LONGEST = 120


def folder_names(answers: Iterable[str]) -> dict[str, str]:
    """Return a folder name for each class.

    Names are unique without regard to case and differ from `unknown` and `undecided`.

    >>> folder_names(["cat", "Cat", "dog/wolf", "NUL", "unknown", "..", "猫"])
    {'cat': 'cat', 'Cat': 'Cat-2', 'dog/wolf': 'dog_wolf', 'NUL': 'NUL_', 'unknown': 'unknown-2', '..': '_', '猫': '猫'}
    """
    used, names = {_folded(UNKNOWN), _folded(UNDECIDED)}, {}
    for answer in answers:
        plain = safe_name(answer)
        name, number = plain, 1
        while _folded(name) in used:
            number += 1
            name = f"{plain}-{number}"
        used.add(_folded(name))
        names[answer] = name
    return names


def safe_name(text: str) -> str:
    """Return a name that is valid on every operating system.

    >>> safe_name(" a:b. "), safe_name("aux.txt"), safe_name(".hidden"), len(safe_name("x" * 500))
    ('a_b', 'aux.txt_', '_hidden', 120)
    """
    name = FORBIDDEN.sub("_", unicodedata.normalize("NFC", readable(text)))
    name = _cut(name.strip()).rstrip(". ")
    if name.startswith("."):
        name = f"_{name[1:]}"
    name = name or "_"
    return f"{name}_" if RESERVED.fullmatch(name) else name


def numbered(number: int, image: str, suffix: str | None = None) -> str:
    """Return the file name of a row: its unique number, and the name of the image.

    >>> numbered(7, "photos/cat.jpg"), numbered(7, "clip.mp4#120", ".jpg")
    ('000007-cat.jpg', '000007-clip.mp4#120.jpg')
    """
    path = Path(os.path.basename(image.rstrip("/")) or "image")
    ending = path.suffix if suffix is None else suffix
    stem = path.stem if suffix is None else path.name
    return f"{number:06d}-{safe_name(stem)}{FORBIDDEN.sub('_', readable(ending))[:16].rstrip('. ')}"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _cut(name: str) -> str:
    return name.encode()[:LONGEST].decode(errors="ignore")
