"""A stream of JPEG images in one http answer, in which each takes the place of the last: multipart/x-mixed-replace, or "MJPEG"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from ..core.types import Error

# Bytes of a line, and lines of the headers of one image.
LONGEST_LINE, MOST_LINES = 8_192, 100


def images_of(stream: IO[bytes], boundary: bytes, largest: int) -> Iterator[bytes]:
    """The contents of the images, of at most `largest` bytes each.

    >>> import io
    >>> body = b"--x\\r\\nContent-Type: image/jpeg\\r\\nContent-Length: 3\\r\\n\\r\\nONE\\r\\n--x\\r\\n\\r\\nTWO\\r\\n--x--\\r\\n"
    >>> list(images_of(io.BytesIO(body), b"x", 100))
    [b'ONE', b'TWO']
    """
    # Some servers say the boundary with its dashes, some without.
    boundary = boundary.strip(b"-")
    before = _until(stream, boundary, largest)
    while before is not None:
        headers = _headers(stream)
        length = headers.get("content-length", "")
        if length.isdecimal():
            if int(length) > largest:
                raise _too_large(largest)
            content: bytes | None = stream.read(int(length))
            before = _until(stream, boundary, largest)
        else:
            content = before = _until(stream, boundary, largest)
        # What breaks off before the next boundary is half an image.
        if content and before is not None and headers.get("content-type", "image/").startswith("image/"):
            yield content


def _until(stream: IO[bytes], boundary: bytes, largest: int) -> bytes | None:
    """What comes before the next boundary; None where none comes."""
    content = bytearray()
    while line := stream.readline(LONGEST_LINE):
        if line.startswith(b"--") and line.strip().strip(b"-") == boundary:
            return bytes(content).removesuffix(b"\n").removesuffix(b"\r")
        content += line
        if len(content) > largest:
            raise _too_large(largest)
    return None


def _headers(stream: IO[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(MOST_LINES):
        name, _, value = stream.readline(LONGEST_LINE).decode("latin-1").strip().partition(":")
        if not name:
            return found
        found[name.strip().lower()] = value.strip().lower()
    raise Error(f"A part of the stream has more than {MOST_LINES} lines of headers.")


def _too_large(largest: int) -> Error:
    return Error(f"An image of the stream has more than {largest >> 20} megabytes.")
