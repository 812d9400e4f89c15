"""Small images in every colour mode."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def noise(width: int = 21, height: int = 13, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def colour_modes() -> dict[str, Image.Image]:
    picture = Image.fromarray(noise())
    see_through = Image.fromarray(noise(channels=4))
    palette = picture.quantize(16)
    palette_with_hole = palette.copy()
    palette_with_hole.info["transparency"] = 3
    with Image.open(io.BytesIO(encoded(picture, "PNG", transparency=tuple(noise()[0, 0].tolist())))) as opened:
        opened.load()
    return {
        "grey": picture.convert("L"),
        "black and white": picture.convert("1"),
        "grey with alpha": see_through.convert("LA"),
        "alpha": see_through,
        "palette": palette,
        "palette with a see-through colour": palette_with_hole,
        "RGB with a see-through colour": opened,
        "print colours": picture.convert("CMYK"),
        "video colours": picture.convert("YCbCr"),
        "16-bit grey": Image.fromarray(np.arange(273, dtype=np.uint16).reshape(13, 21) * 240),
        "32-bit grey": picture.convert("I"),
        "float grey": picture.convert("F"),
    }
