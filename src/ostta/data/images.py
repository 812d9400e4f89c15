"""From whatever a person has (a file, bytes, an array, a PIL image) to one RGB image."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, TiffImagePlugin

from ..core.checks import one_line
from ..core.types import Error, ImageError
from ..io import open_regular
from .features import ImageFeatures
from .headers import count_scans, sizes_inside
from .large import decode_smaller, in_tiles, is_large

# What a camera's photo may have; the adapter's option of this name raises it.
MAX_MEGAPIXELS = 64.0
# An EPS file is a program, which Pillow would hand to Ghostscript, and which need not come to an end.
_NOT_READ = frozenset(["EPS"])
# Formats that have a signature, so that a file can be recognised whose name does not say what it is.
_RECOGNISED = (
    "AVIF",
    "BMP",
    "GIF",
    "ICNS",
    "ICO",
    "JPEG",
    "JPEG2000",
    "PNG",
    "PSD",
    "QOI",
    "TIFF",
    "WEBP",
)
# Bytes 8 to 12 of a HEIF file. Files with one of the last two may also be AVIF, which Pillow reads by itself.
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
# Bytes at the start of a file that decide which format it has.
START = 16
# Each scan of a progressive JPEG takes the time of a whole picture and may have a hundred bytes; encoders write about ten.
_MOST_SCANS = 64

# What an image can be read from: a PIL image, a path, the content of an image file, or an HxWx3 uint8 array.
ImageSource = Image.Image | str | os.PathLike[str] | bytes | bytearray | memoryview | npt.NDArray[Any]

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


class TooLargeError(ImageError):
    """An image has more pixels than are read."""


def read_image(source: ImageSource, max_megapixels: float | None = None) -> Image.Image:
    """One RGB image from a path, bytes, an HxWx3 uint8 array or a PIL image, of at most `max_megapixels` (64 if None).

    Paths and bytes are turned by their EXIF orientation; a PIL image is taken as it stands. An image of more than 16 megapixels
    comes out smaller, by a whole divisor: a view for a backbone has some 224 pixels a side anyway.
    """
    if isinstance(source, ImageFeatures):
        raise Error("There is no image here, only its features.")
    if isinstance(source, Image.Image):
        _check_size(source.size, "The given image", max_megapixels)
        return _convert(source, "The given image")
    if isinstance(source, np.ndarray):
        return _from_array(source, max_megapixels)
    if isinstance(source, (bytes, bytearray, memoryview)):
        if not len(source):
            raise ImageError("The given bytes are empty: give the whole content of an image file.")
        return OpenedImage(io.BytesIO(source), "The given bytes", max_megapixels).decode()
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(source), max_megapixels)
    raise ImageError(
        f"An image cannot be read from a {type(source).__name__}: "
        "give a path, bytes, a PIL image or an HxWx3 uint8 array."
    )


def is_image_content(start: bytes) -> bool:
    """Whether a file that begins with these bytes, at least `START` of them, is an image by its signature.

    >>> is_image_content(b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR"), is_image_content(b"BMW.jpg\\nFord.jpg")
    (True, False)
    """
    if _is_heif(start):
        return True
    if start.startswith(b"BM") and b"\0" not in start:
        return False  # two letters are also the beginning of many texts
    Image.init()
    readers = (Image.OPEN[name][1] for name in _RECOGNISED if name in Image.OPEN)
    return any(accepts is not None and bool(accepts(start)) for accepts in readers)


def to_rgb(image: Image.Image) -> Image.Image:
    """`image` in mode RGB, by the rules of transformers' PIL image processors: transparent parts are put on white.

    A 16-bit grey image keeps its values and is cut at 255, so an ordinary one comes out nearly white. That is Pillow's plain
    conversion and what the published models' processors do; scale such images to 8 bits first to see their content.
    """
    if image.mode == "RGB" and image.info.get("transparency") is None:
        return image
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _from_path(path: Path, max_megapixels: float | None) -> Image.Image:
    try:
        opened = open_regular(path, "image file")
    except Error as problem:
        raise ImageError(str(problem)) from problem
    with opened as file:
        if not os.fstat(file.fileno()).st_size:
            raise ImageError(f"The image file '{path}' is empty.")
        return OpenedImage(file, f"The image file '{path}'", max_megapixels).decode()


def _from_array(array: npt.NDArray[Any], max_megapixels: float | None) -> Image.Image:
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ImageError(f"An image array of shape {array.shape} cannot be used: it must be height x width x 3.")
    if array.dtype != np.uint8:
        raise ImageError(
            f"An image array of type {array.dtype} cannot be used: it must be uint8, with values from 0 to 255."
        )
    _check_size((array.shape[1], array.shape[0]), "The given array", max_megapixels)
    return _convert(Image.fromarray(np.ascontiguousarray(array)), "The given array")


class OpenedImage:
    """The content of an image file of which only the header was looked at: an Error says what is wrong with that, or too large in it.

    `formats` are Pillow's names of those that are read, all if not given.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str = "The given bytes",
        max_megapixels: float | None = None,
        formats: Collection[str] | None = None,
    ) -> None:
        self._stream, self._name, self._most = stream, name, max_megapixels
        try:
            inside = sizes_inside(stream)
        except OSError as problem:
            raise ImageError(f"{name} cannot be read: {problem}.") from problem
        for size in inside:
            _check_size(size, name, max_megapixels)
        try:
            image = _identify(stream, formats)
        # Pillow's readers raise nearly every kind of exception on damaged input, so all of them mean "unreadable" here.
        except Exception as problem:
            raise ImageError(f"{name} cannot be read as an image: {one_line(problem)}.") from problem
        if image is None:
            raise ImageError(f"{name} cannot be read as an image: its format is unknown or its header is damaged.")
        _check_size(image.size, name, max_megapixels)
        self._image = image

    @property
    def pixels(self) -> int:
        """How many it has, as its header says."""
        return self._image.width * self._image.height

    def decode(self) -> Image.Image:
        """The picture in RGB, upright."""
        image, stream, name, most = self._image, self._stream, self._name, self._most
        if isinstance(image, TiffImagePlugin.TiffImageFile):
            # It is decoded in whole tiles, which may be far larger than the picture.
            tile = image.tag_v2.get(TiffImagePlugin.TILEWIDTH), image.tag_v2.get(TiffImagePlugin.TILELENGTH)
            if isinstance(tile[0], int) and isinstance(tile[1], int):
                _check_size((tile[0], tile[1]), f"A tile of {name[0].lower()}{name[1:]}", most)
        if image.info.get("progressive") and count_scans(stream, _MOST_SCANS) > _MOST_SCANS:
            raise ImageError(
                f"{name} has more than {_MOST_SCANS} scans, as no usual JPEG has: save it again, not progressive."
            )
        try:
            if isinstance(image, TiffImagePlugin.TiffImageFile):
                # Else its reader makes room for the pixels, after a check against Pillow's own, process-wide limit.
                image.im = Image.new(image.mode, getattr(image, "_tile_size", image.size), None).im
            decode_smaller(image)
            image.load()
        except Exception as problem:
            raise ImageError(
                f"{name} cannot be decoded, it may be damaged or cut short: {one_line(problem)}."
            ) from problem
        # Some formats hold a picture of another size than their header says.
        _check_size(image.size, name, most)
        # The orientation is read after loading: TIFF files are turned by Pillow itself, which then drops the tag.
        turn = _UPRIGHT.get(_orientation(image))
        if turn is None:
            return _convert(image, name)
        # A large image is turned once it is small.
        return _convert(image, name).transpose(turn) if is_large(image) else _convert(image.transpose(turn), name)


def _identify(stream: IO[bytes], formats: Collection[str] | None) -> Image.Image | None:
    """Open without decoding, as `Image.open` does but without its size check.

    That check is a process-wide setting with a limit below ours, and its warning could only be silenced for all threads.
    """
    prefix = stream.read(START)
    tried: set[str] = set()
    # The common formats first: loading all of Pillow's readers takes a while.
    for load_readers in (Image.preinit, Image.init, partial(_load_heif, prefix, formats)):
        load_readers()
        for reader in [reader for reader in Image.ID if reader not in tried | _NOT_READ]:
            tried.add(reader)
            if formats is not None and reader not in formats:
                continue
            factory, accepts = Image.OPEN[reader]
            if accepts is not None and accepts(prefix) is not True:
                continue
            stream.seek(0)
            try:
                return factory(stream, "")
            except (SyntaxError, IndexError, TypeError, struct.error):
                continue  # How a reader says "not mine".
    return None


def _is_heif(start: bytes) -> bool:
    return start[4:8] == b"ftyp" and start[8:12] in _HEIF_BRANDS


def _load_heif(start: bytes, formats: Collection[str] | None) -> None:
    """Add the reader of HEIF images to Pillow's if one is needed; raise an ImportError with the remedy if it is not installed."""
    if not _is_heif(start) or "HEIF" in Image.OPEN or (formats is not None and "HEIF" not in formats):
        return
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise ImportError(
            'HEIC images need pillow-heif, which `pip install "ostta[heic]"` installs, or save it as JPEG'
        ) from None
    register_heif_opener()


def _check_size(size: tuple[int, int], name: str, max_megapixels: float | None) -> None:
    width, height = size
    most = MAX_MEGAPIXELS if max_megapixels is None else max_megapixels
    if width * height > most * 1_000_000:
        # Whoever gave no limit, such as a reader of data sets, has no option to raise.
        otherwise = "" if max_megapixels is None else ", or raise the option `max_megapixels`"
        raise TooLargeError(
            f"{name} has {width} x {height} pixels: at most {most:g} megapixels are read, so make it smaller first{otherwise}."
        )
    if not width * height:
        raise ImageError(f"{name} has {width} x {height} pixels: it must have at least one.")


def _convert(image: Image.Image, name: str) -> Image.Image:
    try:
        image.load()
        return in_tiles(image, to_rgb) if is_large(image) else to_rgb(image)
    except Exception as problem:  # A PIL image may still be undecoded, and then fails in as many ways as a file.
        raise ImageError(f"{name} (mode {image.mode}) cannot be made an RGB image: {problem}.") from problem


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # A damaged EXIF block does not spoil the picture: show it as it is stored.
        return 1
