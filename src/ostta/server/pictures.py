"""Images as they were sent: JPEG, PNG and WebP, refused by their headers where they are too large; thumbnails where images are kept."""

from __future__ import annotations

import errno
import io

from PIL import Image

from ..core.types import Error
from ..data.images import OpenedImage
from .problems import ProblemError

FORMATS = ("JPEG", "PNG", "WEBP")
# What is decoded at once, without going through another thread: it takes less time than that.
SMALL = 128 * 128
# Pixels on each side of a thumbnail.
SIDE = 96


def is_image(content: bytes) -> bool:
    """Whether it begins as a JPEG, a PNG or a WebP does."""
    return content.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (
        content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    )


class Picture(OpenedImage):
    """An image that was sent. Its pixels are not decoded yet."""

    def __init__(self, content: bytes, megapixels: float) -> None:
        if not content:
            raise Error("The image is empty: send the whole content of an image file.")
        if not is_image(content):
            raise Error("The image is neither a JPEG, nor a PNG, nor a WebP.")
        try:
            super().__init__(io.BytesIO(content), "The image", megapixels, FORMATS)
        except Error as problem:
            # Pillow imports its readers when they are first used.
            if isinstance(problem.__cause__, OSError) and problem.__cause__.errno in (errno.EMFILE, errno.ENFILE):
                raise ProblemError(503, "The server cannot open any more files: send again later.", 5) from None
            raise


def thumbnail_of(image: Image.Image) -> bytes:
    """A small JPEG of a decoded picture."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def small_enough(picture: OpenedImage) -> bool:
    """Whether it is decoded where it is."""
    return picture.pixels <= SMALL
