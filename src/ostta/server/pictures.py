"""Uploaded images: JPEG, PNG and WebP, refused by their header if they are too large; thumbnails."""

from __future__ import annotations

import errno
import io

from PIL import Image

from ..core.types import Error
from ..data.images import OpenedImage
from .problems import ProblemError

FORMATS = ("JPEG", "PNG", "WEBP")
# Pixels of an image that is decoded at once, because another thread would take longer.
SMALL = 128 * 128
# Pixels on each side of a thumbnail.
SIDE = 96


def is_image(content: bytes) -> bool:
    """Return whether the content starts like a JPEG, PNG or WebP file."""
    return content.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (
        content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    )


class Picture(OpenedImage):
    """An uploaded image whose pixels are not decoded yet."""

    def __init__(self, content: bytes, megapixels: float) -> None:
        if not content:
            raise Error("The image is empty: send the whole content of an image file.", code="image-unreadable")
        if not is_image(content):
            raise Error("The image is not a JPEG, PNG or WebP file.", code="image-unreadable")
        try:
            super().__init__(io.BytesIO(content), "The image", megapixels, FORMATS)
        except Error as problem:
            # Pillow imports its readers on first use, which may fail without file descriptors.
            if isinstance(problem.__cause__, OSError) and problem.__cause__.errno in (errno.EMFILE, errno.ENFILE):
                raise ProblemError(503, "The server cannot open any more files: send again later.", 5) from None
            raise


def thumbnail_of(image: Image.Image) -> bytes:
    """Return a small JPEG of a decoded image."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def small_enough(picture: OpenedImage) -> bool:
    """Return whether the image is decoded at once."""
    return picture.pixels <= SMALL
