"""Images of more than 16 megapixels: decoded smaller where the format can, made RGB tile by tile, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable

from PIL import Image

# Up to here an image is decoded and converted whole, and not one pixel differs from the published models' processors.
PLAIN_PIXELS = 16_000_000
# A large image is not made smaller than this on its short side: random crops of it still have more pixels than a view.
SHORT_SIDE = 1_024
# Side of the tiles that are converted one after the other. A conversion makes up to five copies of its pixels.
TILE = 1_024


def is_large(image: Image.Image) -> bool:
    """Whether `image` is treated by this module."""
    return image.width * image.height > PLAIN_PIXELS


def decode_smaller(image: Image.Image) -> None:
    """Let a JPEG that is not decoded yet come out at a half, a quarter or an eighth. Other formats cannot."""
    divisor = _divisor(image.size)
    if divisor > 1:
        image.draft(None, (image.width // divisor, image.height // divisor))


def in_tiles(image: Image.Image, to_rgb: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """`to_rgb(image)`, and where it has more pixels than `PLAIN_PIXELS` the mean of each square of n x n pixels of it."""
    divisor = _divisor(image.size)
    step = TILE // divisor * divisor or divisor
    result = Image.new("RGB", (math.ceil(image.width / divisor), math.ceil(image.height / divisor)))
    for top in range(0, image.height, step):
        for left in range(0, image.width, step):
            box = (left, top, min(left + step, image.width), min(top + step, image.height))
            # A crop by resizing to the same size: `crop` is subject to Pillow's process-wide limit of pixels.
            tile = image.resize((box[2] - left, box[3] - top), Image.Resampling.NEAREST, box)
            rgb = to_rgb(tile)
            result.paste(rgb.reduce(divisor) if divisor > 1 else rgb, (left // divisor, top // divisor))
    return result


def _divisor(size: tuple[int, int]) -> int:
    """By what to divide both sides so that at most `PLAIN_PIXELS` are left; less for a long strip, 1 for a plain image."""
    width, height = size
    divisor = 1
    while math.ceil(width / divisor) * math.ceil(height / divisor) > PLAIN_PIXELS:
        divisor += 1
    return max(1, min(divisor, min(size) // SHORT_SIDE))
