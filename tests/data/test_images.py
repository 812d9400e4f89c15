"""Reading images: every kind of source, every colour mode, and every way to be damaged."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from helpers.errors import raises
from helpers.pictures import colour_modes, encoded, noise
from ostta.core.types import Error
from ostta.data.images import read_image, to_rgb


def test_the_same_picture_from_every_source(tmp_path: Path) -> None:
    pixels = noise()
    content = encoded(Image.fromarray(pixels))
    path = tmp_path / "picture.png"
    path.write_bytes(content)
    for source in (path, str(path), content, pixels, pixels[:, ::-1][:, ::-1], Image.fromarray(pixels)):
        image = read_image(source)
        assert image.mode == "RGB"
        assert np.array_equal(np.asarray(image), pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
def test_exif_turns_files_but_not_pil_images(orientation: int, kind: str) -> None:
    stored = Image.fromarray(noise())
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(stored, kind, exif=exif)
    with Image.open(io.BytesIO(content)) as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened))
    assert np.array_equal(np.asarray(read_image(content)), upright)
    given = Image.fromarray(noise())
    given.getexif()[0x0112] = orientation
    assert np.array_equal(np.asarray(read_image(given)), noise())


def test_damaged_exif_does_not_spoil_the_picture() -> None:
    content = encoded(Image.fromarray(noise()), "PNG", exif=b"Exif\x00\x00nonsense that is no TIFF")
    assert np.array_equal(np.asarray(read_image(content)), noise())


@pytest.mark.parametrize("kind", list(colour_modes()))
def test_colours_are_those_of_transformers(kind: str) -> None:
    image_transforms = pytest.importorskip("transformers.image_transforms")
    image = colour_modes()[kind]
    expected = image_transforms.convert_to_rgb(image.copy(), return_numpy=True)
    assert np.array_equal(np.asarray(to_rgb(image)), expected)
    assert read_image(image).mode == "RGB"


def test_16_bit_files_are_read_as_transformers_reads_them() -> None:
    values = np.array([[0, 100, 255, 256, 65535]], np.uint16)
    image = read_image(encoded(Image.fromarray(values)))
    assert np.asarray(image)[0, :, 0].tolist() == [0, 100, 255, 255, 255]


def test_one_pixel() -> None:
    assert read_image(np.full((1, 1, 3), 7, np.uint8)).getpixel((0, 0)) == (7, 7, 7)
    assert read_image(encoded(Image.new("L", (1, 1), 9))).getpixel((0, 0)) == (9, 9, 9)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    good = encoded(Image.fromarray(noise(90, 70)), "JPEG")
    for name, content in {"empty.jpg": b"", "text.jpg": b"hello", "short.jpg": good[: len(good) // 2]}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with raises("image-unreadable", match=name):
            read_image(path)
        with raises("image-unreadable"):
            read_image(content)
    with raises("image-unreadable", match=r"no image file '.*absent\.png'"):
        read_image(tmp_path / "absent.png")
    with raises("image-unreadable"):
        read_image(tmp_path)
    with raises("image-unreadable"):
        read_image("nul\0byte")


def test_an_undecoded_damaged_pil_image() -> None:
    good = encoded(Image.fromarray(noise(90, 70)), "JPEG")
    with Image.open(io.BytesIO(good[: len(good) // 2])) as opened, raises("image-unreadable"):
        read_image(opened)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_is_an_error_or_a_picture(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"]))
    content = bytearray(encoded(Image.fromarray(noise()), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(Error):
            assert read_image(bytes(content)).mode == "RGB"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 4), np.uint8), r"\(4, 4\).*height x width x 3"),
        (np.zeros((3, 4, 4), np.uint8), "height x width x 3"),
        (np.zeros((0, 4, 3), np.uint8), "height x width x 3"),
        (np.zeros((4, 4, 3), np.float32), "float32.*uint8"),
    ],
)
def test_arrays_that_are_no_images(array: np.ndarray, words: str) -> None:
    with raises("image-unreadable", match=words):
        read_image(array)


def test_other_things_are_no_images() -> None:
    with raises("image-unreadable"):
        read_image(3)  # type: ignore[arg-type]
