"""One limit for every source, checked before decoding; large images in bounded memory; small ones untouched."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageFile, ImageOps

import ostta
from helpers.errors import raises
from helpers.pictures import colour_modes, encoded, noise
from ostta.data import image_limits as large
from ostta.data import images
from ostta.data.images import read_image, to_rgb

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000", "AVIF")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and ends where its pixels should begin."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", 99) + b"IDAT"


def picture_in(kind: str) -> bytes:
    if not {ending: form for ending, form in Image.registered_extensions().items() if form == kind}:
        pytest.skip(f"this Pillow has no {kind}")
    return encoded(Image.fromarray(noise()), kind)


def windows_icon(picture: bytes) -> bytes:
    """An icon that claims 16 x 16 pixels, whatever the picture inside has."""
    return struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(picture), 22) + picture


def bitmap(width: int, height: int) -> bytes:
    """The header of a run-length coded bitmap as icons hold it, and an end of it at once."""
    return struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 8, 1, 2, 0, 0, 1, 0) + bytes(4) + b"\0\1"


def apple_icon(picture: bytes) -> bytes:
    body = b"ic08" + struct.pack(">I", 8 + len(picture)) + picture
    return b"icns" + struct.pack(">I", 8 + len(body)) + body


def tiff_of_one_tile(side: int) -> bytes:
    """A TIFF of 10 x 10 grey pixels in one tile of `side` x `side`."""
    tags = {256: 10, 257: 10, 258: 8, 259: 1, 262: 1, 277: 1, 322: side, 323: side, 324: 8, 325: 100}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + bytes(4)


# --- the limit --------------------------------------------------------------------------------------------------------
def never(*arguments: Any, **keywords: Any) -> None:
    raise AssertionError("this was decoded")


@pytest.mark.parametrize(
    "source",
    [
        png_header(8001, 8000),
        windows_icon(png_header(8001, 8000)),
        windows_icon(bitmap(8001, 8000)),
        apple_icon(png_header(8001, 8000)),
        apple_icon(b"\xff\x4f\xff\x51" + bytes(4) + struct.pack(">II", 8001, 8000) + bytes(40)),
        tiff_of_one_tile(8001),
        np.broadcast_to(np.zeros(3, np.uint8), (8000, 8001, 3)),
        "an image",
    ],
    ids=["png", "icon", "bitmap icon", "apple icon", "apple icon of jpeg 2000", "tile", "array", "image"],
)
def test_one_limit_is_checked_before_decoding(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(source, str):
        source = Image.new("1", (8001, 8000))
    for owner, name in ((ImageFile.ImageFile, "load_prepare"), (Image, "fromarray"), (images, "to_rgb")):
        monkeypatch.setattr(owner, name, never)
    with raises(
        "image-unreadable", match=r"8001 x 800\d pixels: at most 64 megapixels are read, so make it smaller first\.$"
    ):
        read_image(source)
    with raises(
        "image-unreadable", match=r"at most 64 megapixels are read, .*, or raise the option `max_megapixels`\.$"
    ):
        read_image(source, ostta.options.AdapterOptions().max_megapixels)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_limit_is_the_same_in_every_format(kind: str) -> None:
    content = picture_in(kind)
    assert read_image(content, max_megapixels=273e-6).size == (21, 13)
    with raises("image-unreadable", match=r"21 x 13 pixels: at most 0\.000272 megapixels"):
        read_image(content, max_megapixels=272e-6)


def test_a_picture_of_another_size_than_its_header_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if a reader hid what it holds from everything that looks at the file.
    monkeypatch.setattr(images, "icon_sizes", lambda stream: [])
    icon = windows_icon(encoded(Image.fromarray(noise())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_image(icon).size == (21, 13)
        with raises("image-unreadable", match="21 x 13 pixels"):
            read_image(icon, max_megapixels=272e-6)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in ("WEBP",)])
def test_pillows_own_limits_do_not_apply(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = picture_in(kind)
    expected = np.asarray(read_image(content))
    # As if Pillow refused anything over 100 pixels: what it does from 179 megapixels on, without the memory. Its reader
    # of WebP cannot be kept from that, but 179 megapixels are well above our own limit.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    monkeypatch.setattr(large, "PLAIN_PIXELS", 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(np.asarray(read_image(content)), expected)


def test_the_option_sets_the_limit() -> None:
    picture = Image.new("RGB", (100, 50))
    adapter = ostta.load("embedded", ["cat", "dog"], method="zero_shot", max_megapixels="0.004")
    with raises("image-unreadable", match=r"100 x 50 pixels: at most 0\.004 megapixels"):
        adapter.step(picture)
    assert adapter.steps == 0
    assert ostta.load("embedded", ["cat", "dog"], method="zero_shot", max_megapixels=0.005).step(picture).reason
    with raises("option-invalid", match="`max_megapixels` .* not -1"):
        ostta.load("embedded", ["cat", "dog"], max_megapixels=-1, method="rosita")


# --- what a small file may cost ---------------------------------------------------------------------------------------
# A GIF of 35 bytes and an RGBA PNG, both just below the limit; each prints its megabytes above what was in use before
# it.
COSTS = """
import resource, struct, sys, zlib
from ostta.data.images import read_image

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

gif = b"GIF89a" + struct.pack("<HH", 8000, 7999) + b"\\x80\\0\\0" + bytes(6)
gif += b"," + struct.pack("<HHHH", 0, 0, 1, 1) + b"\\0\\x02\\x02\\x44\\x01\\0;"
packer, row = zlib.compressobj(1), b"\\0" + bytes([10, 20, 30, 128]) * 8000
rows = b"".join(packer.compress(row) for _ in range(7999)) + packer.flush()
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8000, 7999, 8, 6, 0, 0, 0))
png += chunk(b"IDAT", rows) + chunk(b"IEND", b"")
for content in (gif, png):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    image = read_image(content)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, *image.size, *image.getpixel((9, 9)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
def test_small_files_do_not_cost_much_memory() -> None:
    done = subprocess.run([sys.executable, "-c", COSTS], capture_output=True, text=True, check=True)
    gif, png = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    assert gif[1:] == [4000, 4000, 0, 0, 0]
    assert gif[0] < 160
    assert png[1:] == [4000, 4000, 132, 137, 142]
    assert png[0] < 450


def test_a_jpeg_of_very_many_scans_is_refused() -> None:
    content = encoded(Image.fromarray(noise(64, 64)), "JPEG", progressive=True)
    assert read_image(content).size == (64, 64)
    last = content[content.rindex(b"\xff\xc4", 0, content.rindex(b"\xff\xda")) : -2]
    scans = content.count(b"\xff\xda")
    assert read_image(content[:-2] + last * (64 - scans) + content[-2:]).size == (64, 64)
    with raises("image-unreadable", match="more than 64 scans"):
        read_image(content[:-2] + last * (65 - scans) + content[-2:])
    # What follows the end of the image, such as the video of a moving photo, does not count.
    assert read_image(content + b"\xff\xda" * 100).size == (64, 64)


def test_no_other_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", never)
    endless = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n{} loop\n%%EOF\n"
    with raises("image-unreadable"):
        read_image(endless)


# --- what comes out ---------------------------------------------------------------------------------------------------
def test_a_60_megapixel_photo() -> None:
    content = encoded(Image.new("RGB", (10_000, 6_000), (10, 20, 30)), "JPEG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_image(content)
    assert found.size == (5_000, 3_000)
    assert found.getpixel((2_500, 1_500)) == (10, 20, 30)


def test_up_to_16_megapixels_nothing_changes() -> None:
    assert large.PLAIN_PIXELS == 16_000_000
    pixels = np.random.default_rng(0).integers(0, 256, (4_000, 4_000), dtype=np.uint8)
    picture = Image.fromarray(pixels, "L")
    picture.putpalette(np.random.default_rng(1).integers(0, 256, 768, dtype=np.uint8).tobytes())
    picture.info["transparency"] = 7
    assert np.array_equal(np.asarray(read_image(picture)), plain(picture))
    wider = Image.new("L", (4_001, 4_000))
    assert read_image(wider).size == (2_001, 2_000)


def plain(image: Image.Image) -> np.ndarray[Any, Any]:
    """The conversion of the published models' processors, of the whole image at once."""
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image.convert("RGBA"))
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("kind", list(colour_modes()))
@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_an_image_at_the_threshold_is_not_changed(kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "PLAIN_PIXELS", 273)  # 21 x 13
    image = colour_modes()[kind]
    assert np.array_equal(np.asarray(read_image(image)), plain(image))
    form = "TIFF" if image.mode in ("CMYK", "YCbCr", "F", "I") else "PNG"
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(image, form, exif=exif)
    with Image.open(io.BytesIO(content)) as opened:
        opened.load()
        upright = ImageOps.exif_transpose(opened)
        upright.info = opened.info
        assert np.array_equal(np.asarray(read_image(content)), plain(upright))


@pytest.mark.parametrize("kind", list(colour_modes()))
@pytest.mark.parametrize(("plain_pixels", "divisor"), [(272, 2), (30, 4), (1, 6)])
def test_a_large_image_is_the_mean_of_squares(
    kind: str, plain_pixels: int, divisor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = colour_modes()[kind]
    whole = Image.fromarray(plain(image)).reduce(divisor)
    monkeypatch.setattr(large, "PLAIN_PIXELS", plain_pixels)
    monkeypatch.setattr(large, "SHORT_SIDE", 2)
    for tile in (1, 8, 1024):
        monkeypatch.setattr(large, "TILE", tile)
        assert np.array_equal(np.asarray(read_image(image)), np.asarray(whole))


def test_a_long_strip_keeps_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "PLAIN_PIXELS", 100)
    monkeypatch.setattr(large, "TILE", 8)
    for image in colour_modes().values():
        assert np.array_equal(np.asarray(read_image(image)), plain(image))
        assert to_rgb(read_image(image)).size == (21, 13)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_large_photo_is_turned(kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "PLAIN_PIXELS", 128 * 96)
    monkeypatch.setattr(large, "SHORT_SIDE", 2)
    # Four quarters, each of one colour, so that it does not matter whether a mean is taken before or after decoding.
    pixels = np.zeros((192, 256, 3), np.uint8)
    pixels[:96, :128], pixels[:96, 128:], pixels[96:, :128] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(Image.fromarray(pixels), kind, exif=exif)
    with Image.open(io.BytesIO(content)) as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened).reduce(2)).astype(int)
    found = np.asarray(read_image(content)).astype(int)
    assert found.shape == upright.shape
    assert np.abs(found - upright).mean() < 2
