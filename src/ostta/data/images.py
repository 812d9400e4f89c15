"""From whatever a person has (a file, bytes, an array, a PIL image) to one RGB image."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..core.types import Error

MAX_PIXELS = 200_000_000

ImageSource = Image.Image | str | os.PathLike[str] | bytes | npt.NDArray[Any]

_ORIENTATION_TAG = 0x0112
# What turns a photo upright, by the EXIF orientation it was stored with (1 is upright already).
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_image(source: ImageSource) -> Image.Image:
    """One RGB image from a path, bytes, an HxWx3 uint8 array or a PIL image.

    Paths and bytes are turned by their EXIF orientation; a PIL image is taken as it stands.
    """
    if isinstance(source, Image.Image):
        _check_size(source, "The given image")
        return _convert(source, "The given image")
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        if not len(source):
            raise Error("The given bytes are empty: give the whole content of an image file.")
        return _decode(io.BytesIO(source), "The given bytes")
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(source))
    raise Error(
        f"An image cannot be read from a {type(source).__name__}: "
        "give a path, bytes, a PIL image or an HxWx3 uint8 array."
    )


def to_rgb(image: Image.Image) -> Image.Image:
    """`image` in mode RGB, by the rules of transformers' PIL image processors: see-through parts go over white.

    A 16-bit grey image keeps its values and is cut at 255, so an ordinary one comes out nearly white. That is Pillow's plain
    conversion and what the published models' processors do; scale such images to 8 bits first to see their content.
    """
    if image.mode == "RGB" and image.info.get("transparency") is None:
        return image
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _from_path(path: Path) -> Image.Image:
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise Error(f"The image file '{path}' is empty.")
            return _decode(file, f"The image file '{path}'")
    except FileNotFoundError:
        raise Error(f"There is no image file '{path}'.") from None
    except IsADirectoryError:
        raise Error(f"'{path}' is a folder: give the path of one image file.") from None
    except (OSError, ValueError) as problem:
        raise Error(f"The image file '{path}' cannot be opened: {problem}.") from problem


def _from_array(array: npt.NDArray[Any]) -> Image.Image:
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise Error(f"An image array of shape {array.shape} cannot be used: it must be height x width x 3.")
    if array.dtype != np.uint8:
        raise Error(
            f"An image array of type {array.dtype} cannot be used: it must be uint8, with values from 0 to 255."
        )
    image = Image.fromarray(np.ascontiguousarray(array))
    _check_size(image, "The given array")
    return image


def _decode(stream: IO[bytes], name: str) -> Image.Image:
    try:
        image = _identify(stream)
    # Pillow's readers raise nearly every kind of exception on damaged input, so all of them mean "unreadable" here.
    except Exception as problem:
        raise Error(f"{name} cannot be read as an image: {problem}.") from problem
    if image is None:
        raise Error(f"{name} cannot be read as an image: its format is unknown or its header is damaged.")
    _check_size(image, name)
    try:
        image.load()
    except Exception as problem:
        raise Error(f"{name} cannot be decoded, it may be damaged or cut short: {problem}.") from problem
    # The orientation is read after loading: TIFF files are turned by Pillow itself, which then drops the tag.
    turn = _UPRIGHT.get(_orientation(image))
    return _convert(image if turn is None else image.transpose(turn), name)


def _identify(stream: IO[bytes]) -> Image.Image | None:
    """Open without decoding, as `Image.open` does but without its size check.

    That check is a process-wide setting with a limit below ours, and its warning could only be silenced for all threads.
    """
    prefix = stream.read(16)
    tried: set[str] = set()
    # The common formats first: loading all of Pillow's readers takes a while.
    for load_readers in (Image.preinit, Image.init):
        load_readers()
        for reader in [reader for reader in Image.ID if reader not in tried]:
            tried.add(reader)
            factory, accepts = Image.OPEN[reader]
            if accepts is not None and accepts(prefix) is not True:
                continue
            stream.seek(0)
            try:
                return factory(stream, "")
            except (SyntaxError, IndexError, TypeError, struct.error):
                continue  # How a reader says "not mine".
    return None


def _check_size(image: Image.Image, name: str) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise Error(
            f"{name} has {image.width} x {image.height} pixels: "
            f"at most {MAX_PIXELS // 1_000_000} megapixels are read, so make it smaller first."
        )
    if not image.width * image.height:
        raise Error(f"{name} has {image.width} x {image.height} pixels: it must have at least one.")


def _convert(image: Image.Image, name: str) -> Image.Image:
    try:
        image.load()
        return to_rgb(image)
    except Exception as problem:  # A PIL image may still be undecoded, and then fails in as many ways as a file.
        raise Error(f"{name} (mode {image.mode}) cannot be made an RGB image: {problem}.") from problem


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # A damaged EXIF block does not spoil the picture: show it as it is stored.
        return 1
