"""Draw the contact sheet of all corruptions: one row each, the clean image and severities 1 to 5.

    python tools/contact_sheet.py --out docs/corruptions.png

The image is one of the sample that ships, unless a file is given; it is enlarged without smoothing, so that every pixel
shows.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ostta.data.by_name import open_dataset
from ostta.data.corruptions import corrupt, corruption_names, frost_source
from ostta.io import write_atomically

TILE = 96
GAP = 4
LEFT, TOP = 118, 24
PAPER, INK = (255, 255, 255), (40, 40, 40)
SEED = 0


def sheet(image: np.ndarray, index: int, textures: Path | None, tile: int) -> Image.Image:
    """The whole sheet for one image."""
    names = corruption_names()
    made = Image.new("RGB", (LEFT + 6 * (tile + GAP), TOP + len(names) * (tile + GAP)), PAPER)
    draw = ImageDraw.Draw(made)
    font = ImageFont.load_default(13)
    for column in range(6):
        heading = f"severity {column}" if column else "clean"
        draw.text((LEFT + column * (tile + GAP) + tile // 2, TOP // 2), heading, INK, font, anchor="mm")
    for row, name in enumerate(names):
        top = TOP + row * (tile + GAP)
        draw.text((8, top + tile // 2), name, INK, font, anchor="lm")
        for severity in range(6):
            pixels = corrupt(image, name, severity, seed=SEED, index=index, textures=textures) if severity else image
            picture = Image.fromarray(pixels).resize((tile, tile), Image.Resampling.NEAREST)
            made.paste(picture, (LEFT + severity * (tile + GAP), top))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the PNG to write")
    parser.add_argument("--index", type=int, default=17, help="which image of the sample")
    parser.add_argument("--image", type=Path, help="an image file instead, resized to 224 x 224")
    parser.add_argument("--textures", type=Path, help="folder with the public textures of frost")
    options = parser.parse_args()
    if options.image is None:
        image, tile = np.asarray(open_dataset("sample:cifar10").image(options.index)), TILE
    else:
        with Image.open(options.image) as opened:
            image, tile = np.asarray(opened.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)), 224
    buffer = io.BytesIO()
    sheet(image, options.index, options.textures, tile).save(buffer, "PNG", optimize=True)
    write_atomically(options.out, buffer.getvalue())
    print(f"{options.out}: {buffer.tell():,} bytes, frost from {frost_source(options.textures)}")


if __name__ == "__main__":
    main()
