"""Bounds on the memory and the time of decoding an image.

The sizes of the pictures in an icon and the scans of a JPEG are read from the headers, because Pillow reports them only
after decoding. An image of more than 16 megapixels is decoded at a fraction of its size if the format allows it, and
converted tile by tile.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import IO

from PIL import Image

# Images up to this size are decoded and converted as a whole, with exactly the pixels of the published models'
# processors.
PLAIN_PIXELS = 16_000_000
# Minimum short side of a reduced image, so that random crops still have more pixels than a view.
SHORT_SIDE = 1_024
# Side of the tiles, which are converted one at a time. A conversion makes up to five copies of the pixels.
TILE = 1_024

_WINDOWS, _APPLE = b"\0\0\1\0", b"icns"
_PNG = b"\x89PNG\r\n\x1a\n"
# Width and height in the headers of PNG and both variants of JPEG 2000, one of which stores the height first.
_PNG_SIZE = re.compile(re.escape(_PNG) + rb".{4}IHDR(?P<width>.{4})(?P<height>.{4})", re.DOTALL)
_APPLE_SIZES = (
    _PNG_SIZE,
    re.compile(rb"\xff\x4f\xff\x51.{4}(?P<width>.{4})(?P<height>.{4})", re.DOTALL),
    re.compile(rb"\0\0\0\x16ihdr(?P<height>.{4})(?P<width>.{4})", re.DOTALL),
)
# Upper bound on the size of an icon; further bytes are ignored.
_MOST_BYTES = 2**26
# Next JPEG marker with a length. Stuffed bytes, restarts and the start of the image have none and are skipped.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
_END_OF_IMAGE, _START_OF_SCAN = 0xD9, 0xDA


# --- headers ----------------------------------------------------------------------------------------------------------
def icon_sizes(stream: IO[bytes]) -> list[tuple[int, int]]:
    """Return the width and height of each picture in an icon file; an empty list for other files."""
    stream.seek(0)
    prefix = stream.read(4)
    stream.seek(0)
    if prefix not in (_WINDOWS, _APPLE):
        return []
    content = stream.read(_MOST_BYTES)
    stream.seek(0)
    # Pillow ignores entries without pixels, which are damaged.
    return [size for size in (_apple(content) if prefix == _APPLE else _windows(content)) if 0 not in size]


def count_scans(stream: IO[bytes], most: int) -> int:
    """Return the number of scans of the JPEG in `stream`. Counting stops at `most` + 1."""
    stream.seek(0)
    content = stream.read()
    stream.seek(0)
    scans = position = 0
    while scans <= most and (match := _MARKER.search(content, position)):
        marker = match[0][1]
        if marker == _END_OF_IMAGE:
            break
        scans += marker == _START_OF_SCAN
        position = match.end() + max(2, int.from_bytes(content[match.end() : match.end() + 2]))
    return scans


def _apple(content: bytes) -> Iterator[tuple[int, int]]:
    for pattern in _APPLE_SIZES:
        for match in pattern.finditer(content):
            yield int.from_bytes(match["width"]), int.from_bytes(match["height"])


def _windows(content: bytes) -> Iterator[tuple[int, int]]:
    """Read the icon directory: 16 bytes per entry, the last four of which are the offset of the picture."""
    (count,) = struct.unpack("<4xH", content[:6].ljust(6, b"\0"))
    for entry in range(count):
        offset = content[6 + 16 * entry + 12 : 6 + 16 * entry + 16]
        picture = content[int.from_bytes(offset, "little") :][:24]
        if len(offset) < 4 or len(picture) < 16:
            return
        png = _PNG_SIZE.match(picture)
        if png:
            yield int.from_bytes(png["width"]), int.from_bytes(png["height"])
        elif int.from_bytes(picture[:4], "little") == 12:
            yield struct.unpack("<4xHH", picture[:8])
        else:
            width, height = struct.unpack("<4xii", picture[:12])
            yield abs(width), abs(height) // 2  # The height includes the mask, which is stored below the picture.


# --- large images -----------------------------------------------------------------------------------------------------
def decode_smaller(image: Image.Image) -> None:
    """Configure a large JPEG to be decoded at 1/2, 1/4 or 1/8 of its size. Other formats are not changed."""
    divisor = _divisor(image.size)
    if divisor > 1:
        image.draft(None, (image.width // divisor, image.height // divisor))


def in_tiles(image: Image.Image, to_rgb: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Return `to_rgb(image)`, computed tile by tile.

    If the image has more than `PLAIN_PIXELS` pixels, each square of n x n pixels is averaged.
    """
    divisor = _divisor(image.size)
    step = TILE // divisor * divisor or divisor
    result = Image.new("RGB", (math.ceil(image.width / divisor), math.ceil(image.height / divisor)))
    for top in range(0, image.height, step):
        for left in range(0, image.width, step):
            box = (left, top, min(left + step, image.width), min(top + step, image.height))
            # Crop with `resize`, because `crop` is subject to the process-wide pixel limit of Pillow.
            tile = image.resize((box[2] - left, box[3] - top), Image.Resampling.NEAREST, box)
            rgb = to_rgb(tile)
            result.paste(rgb.reduce(divisor) if divisor > 1 else rgb, (left // divisor, top // divisor))
    return result


def _divisor(size: tuple[int, int]) -> int:
    """Return the divisor of both sides that leaves at most `PLAIN_PIXELS`, or a smaller one for narrow images."""
    width, height = size
    divisor = 1
    while math.ceil(width / divisor) * math.ceil(height / divisor) > PLAIN_PIXELS:
        divisor += 1
    return max(1, min(divisor, min(size) // SHORT_SIDE))
