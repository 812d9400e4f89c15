"""Names of folders and files that every system can have, from class names and image names."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from ...io import readable

# The folder of "I don't know", and that of images that came while the threshold was warming up.
UNKNOWN, UNDECIDED = "unknown", "undecided"
# What some system does not allow in a name, or takes for something else.
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|]')
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?", re.IGNORECASE)
# Bytes of a name; systems allow 255, and a number may follow.
LONGEST = 120


def folder_names(answers: Iterable[str]) -> dict[str, str]:
    """A folder for each class, none like another even where the system does not tell a from A, and none like `unknown` or `undecided`.

    >>> folder_names(["cat", "Cat", "dog/wolf", "NUL", "unknown", "..", "猫"])
    {'cat': 'cat', 'Cat': 'Cat-2', 'dog/wolf': 'dog_wolf', 'NUL': 'NUL_', 'unknown': 'unknown-2', '..': '_', '猫': '猫'}
    """
    taken, found = {_folded(UNKNOWN), _folded(UNDECIDED)}, {}
    for answer in answers:
        plain = safe_name(answer)
        name, number = plain, 1
        while _folded(name) in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(_folded(name))
        found[answer] = name
    return found


def safe_name(text: str) -> str:
    """One name that every system can have.

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
    """The file name of a row: its number, which no other has, and what the image is called.

    >>> numbered(7, "photos/cat.jpg"), numbered(7, "clip.mp4#120", ".jpg")
    ('000007-cat.jpg', '000007-clip.mp4#120.jpg')
    """
    path = Path(os.path.basename(image.rstrip("/")) or "image")
    ending = path.suffix if suffix is None else suffix
    stem = path.stem if suffix is None else path.name
    return f"{number:06d}-{safe_name(stem)}{FORBIDDEN.sub('_', readable(ending))[:16].rstrip('. ')}"


def number_of(name: str) -> int | None:
    """The number that a file name of `numbered` begins with; None of another file.

    >>> number_of("000007-cat.jpg"), number_of("000008.jpg"), number_of("cat.jpg")
    (7, 8, None)
    """
    found = re.match(r"([0-9]{6,18})[-.]", name)
    return int(found[1]) if found else None


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _cut(name: str) -> str:
    return name.encode()[:LONGEST].decode(errors="ignore")
