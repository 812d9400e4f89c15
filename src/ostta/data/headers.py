"""What Pillow says of a file only after decoding it, but must be known before: the pictures in an icon, scans of a JPEG."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import IO

_WINDOWS, _APPLE = b"\0\0\1\0", b"icns"
_PNG = b"\x89PNG\r\n\x1a\n"
# Width and height in the headers of PNG and of both forms of JPEG 2000, which has the height first in one of them.
_PNG_SIZE = re.compile(re.escape(_PNG) + rb".{4}IHDR(?P<width>.{4})(?P<height>.{4})", re.DOTALL)
_APPLE_SIZES = (
    _PNG_SIZE,
    re.compile(rb"\xff\x4f\xff\x51.{4}(?P<width>.{4})(?P<height>.{4})", re.DOTALL),
    re.compile(rb"\0\0\0\x16ihdr(?P<height>.{4})(?P<width>.{4})", re.DOTALL),
)
# No icon is as long as this; what lies behind it is not looked at.
_MOST_BYTES = 2**26
# The next marker of a JPEG file, past stuffed bytes, restarts and the start of the image, which have no length.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA


def sizes_inside(stream: IO[bytes]) -> list[tuple[int, int]]:
    """Width and height of each picture in an icon file, whatever the icon's own header says; none for any other file."""
    stream.seek(0)
    prefix = stream.read(4)
    stream.seek(0)
    if prefix not in (_WINDOWS, _APPLE):
        return []
    content = stream.read(_MOST_BYTES)
    stream.seek(0)
    # An entry without pixels is damaged, and not the one that will be shown.
    return [size for size in (_apple(content) if prefix == _APPLE else _windows(content)) if 0 not in size]


def count_scans(stream: IO[bytes], most: int) -> int:
    """How many scans the JPEG in `stream` has, counted up to one more than `most`."""
    stream.seek(0)
    content = stream.read()
    stream.seek(0)
    scans = position = 0
    while scans <= most and (found := _MARKER.search(content, position)):
        marker = found[0][1]
        if marker == _END_OF_IMAGE:
            break
        scans += marker == _START_OF_SCAN
        position = found.end() + max(2, int.from_bytes(content[found.end() : found.end() + 2]))
    return scans


def _apple(content: bytes) -> Iterator[tuple[int, int]]:
    for pattern in _APPLE_SIZES:
        for found in pattern.finditer(content):
            yield int.from_bytes(found["width"]), int.from_bytes(found["height"])


def _windows(content: bytes) -> Iterator[tuple[int, int]]:
    """By the directory of the file: 16 bytes an entry, the last four of which say where its picture begins."""
    (count,) = struct.unpack("<4xH", content[:6].ljust(6, b"\0"))
    for entry in range(count):
        place = content[6 + 16 * entry + 12 : 6 + 16 * entry + 16]
        picture = content[int.from_bytes(place, "little") :][:24]
        if len(place) < 4 or len(picture) < 16:
            return
        png = _PNG_SIZE.match(picture)
        if png:
            yield int.from_bytes(png["width"]), int.from_bytes(png["height"])
        elif int.from_bytes(picture[:4], "little") == 12:
            yield struct.unpack("<4xHH", picture[:8])
        else:
            width, height = struct.unpack("<4xii", picture[:12])
            yield abs(width), abs(height) // 2  # The picture and its mask lie one above the other.
