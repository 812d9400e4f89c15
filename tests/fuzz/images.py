"""Damaged image files of many formats, on which an adapter steps."""

from __future__ import annotations

import io
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers import cases
from ostta.data.images import read_image

from .engine import Kind, PromiseError
from .mutate import damaged

SIZES = (0, 1, 7, 255, 4000, 8001, 13000, 16384, 32767, 65535, 100_000, 2**31 - 1, 2**32 - 1)
PNG = b"\x89PNG\r\n\x1a\n"


class Images(Kind):
    """At the limit of 64 megapixels, the conversion of a transparent image needs several copies of its pixels."""

    memory = 2**30

    def __init__(self) -> None:
        self.seeds = seeds()
        self.adapter = cases.adapter("rosita")
        for image in cases.images(6):
            self.adapter.step(image)

    def mutation(self, rng: random.Random) -> bytes:
        name = rng.choice(list(self.seeds))
        content = self.seeds[name]
        if rng.random() < 0.25:
            content = resized(content, name, rng)
            if rng.random() < 0.5:
                return content
        content = damaged(content, rng, tuple(self.seeds.values()))
        return repaired(content) if name.startswith("png") and rng.random() < 0.7 else content

    def held(self) -> Any:
        return self.adapter.steps, {name: tensor.tolist() for name, tensor in self.adapter.pipeline.tensors().items()}

    def target(self, folder: Path) -> None:
        content = (folder / "input").read_bytes()
        self.adapter.step(content).to_json()
        # From a path it is the same image.
        if read_image(folder / "input").tobytes() != read_image(content).tobytes():
            raise PromiseError("the same file gives two different images")


def seeds() -> dict[str, bytes]:
    """Return a small image in every format that Pillow writes, and in some that it only reads."""
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 255, (18, 24, 3), dtype=np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    turned[0x010E] = "a description"
    clear = picture.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(picture.size))
    few = picture.quantize(16)
    made: dict[str, tuple[Image.Image, str, dict[str, Any]]] = {
        "jpeg": (picture, "JPEG", {"exif": turned}),
        "jpeg grey": (picture.convert("L"), "JPEG", {}),
        "jpeg cmyk": (picture.convert("CMYK"), "JPEG", {}),
        "jpeg progressive": (picture, "JPEG", {"progressive": True}),
        "png": (picture, "PNG", {"exif": turned}),
        "png clear": (clear, "PNG", {}),
        "png few": (few, "PNG", {"transparency": 3}),
        "png 16": (Image.fromarray(np.arange(432, dtype=np.uint16).reshape(18, 24)), "PNG", {}),
        "png 1": (picture.convert("1"), "PNG", {}),
        "gif": (few, "GIF", {"save_all": True, "append_images": [few, few], "transparency": 2}),
        "tiff": (picture, "TIFF", {"exif": turned}),
        "tiff lzw": (clear, "TIFF", {"compression": "tiff_lzw"}),
        "tiff deflate": (picture, "TIFF", {"compression": "tiff_adobe_deflate"}),
        "tiff float": (picture.convert("F"), "TIFF", {}),
        "webp": (picture, "WEBP", {"exif": turned}),
        "webp clear": (clear, "WEBP", {"lossless": True}),
        "bmp": (picture, "BMP", {}),
        "bmp few": (few, "BMP", {}),
        "ico": (clear, "ICO", {"sizes": [(16, 16)]}),
        "ico bmp": (clear, "ICO", {"sizes": [(16, 16)], "bitmap_format": "bmp"}),
        "ppm": (picture, "PPM", {}),
        "tga": (clear, "TGA", {"compression": "tga_rle"}),
        "pcx": (picture, "PCX", {}),
        "dds": (clear, "DDS", {}),
        "icns": (clear.resize((16, 16)), "ICNS", {}),
        "sgi": (picture, "SGI", {}),
        "im": (picture, "IM", {}),
        "eps": (picture, "EPS", {}),
        "xbm": (picture.convert("1"), "XBM", {}),
        "spider": (picture.convert("F"), "SPIDER", {}),
        "msp": (picture.convert("1"), "MSP", {}),
        "mpo": (picture, "MPO", {"save_all": True, "append_images": [picture]}),
        "jpeg 2000": (picture, "JPEG2000", {}),
        "avif": (picture, "AVIF", {}),
        "qoi": (clear, "QOI", {}),
    }
    Image.init()
    found = {}
    for name, (image, form, options) in made.items():
        # A build of Pillow may be without one of the rarer ones.
        if form in Image.SAVE:
            buffer = io.BytesIO()
            image.save(buffer, form, **options)
            found[name] = buffer.getvalue()
    return found | {"psd": _psd(picture)}


def _psd(image: Image.Image) -> bytes:
    """Return a Photoshop file, which Pillow reads but does not write."""
    planes = b"".join(plane.tobytes() for plane in image.split())
    header = struct.pack(">4sH6xHIIHH", b"8BPS", 1, 3, image.height, image.width, 8, 3)
    return header + struct.pack(">III", 0, 0, 0) + struct.pack(">H", 0) + planes


def resized(content: bytes, name: str, rng: random.Random) -> bytes:
    """Return the file with another size in its header, for the formats that are listed here."""
    data = bytearray(content)
    width, height = rng.choice(SIZES), rng.choice(SIZES)
    if name.startswith("png"):
        struct.pack_into(">II", data, 16, width, height)
        return repaired(bytes(data))
    if name == "gif":
        struct.pack_into("<HH", data, 6, width & 0xFFFF, height & 0xFFFF)
        frame = content.find(b"\x2c")
        struct.pack_into("<HH", data, frame + 5, width & 0xFFFF, height & 0xFFFF)
    elif name.startswith("bmp"):
        struct.pack_into("<II", data, 18, width, height)
    elif name == "psd":
        struct.pack_into(">II", data, 14, height, width)
    elif name.startswith(("jpeg", "mpo")) and (start := max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))) > 0:
        struct.pack_into(">HH", data, start + 5, height & 0xFFFF, width & 0xFFFF)
    elif name == "qoi":
        struct.pack_into(">II", data, 4, width, height)
    elif name == "ppm":
        return b"P6 %d %d 255\n" % (width, height) + content[-100:]
    elif name == "tga":
        struct.pack_into("<HH", data, 12, width & 0xFFFF, height & 0xFFFF)
    return bytes(data)


def repaired(content: bytes) -> bytes:
    """Recompute the checksums of a PNG file, so that the damage reaches the readers of its chunks."""
    if not content.startswith(PNG):
        return content
    made, place = PNG, 8
    while place + 8 <= len(content):
        (length,) = struct.unpack_from(">I", content, place)
        chunk = content[place + 4 : place + 8 + length]
        made += content[place : place + 4] + chunk + struct.pack(">I", zlib.crc32(chunk))
        place += 12 + length
    return made
