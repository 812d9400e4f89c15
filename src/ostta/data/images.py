"""Read one RGB image from a path, bytes, an array or a PIL image."""

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

from ..core.errors import reason_of, translate_errors
from ..core.types import Error, ImageError
from ..io import open_regular
from . import image_limits
from .image_limits import count_scans, decode_smaller, icon_sizes, in_tiles

# Sufficient for camera photos. The adapter option `max_megapixels` overrides it.
MAX_MEGAPIXELS = 64.0
# EPS files are programs that Pillow runs in Ghostscript and that may not terminate.
_NOT_READ = frozenset(["EPS"])
# Formats with a signature, which are recognised even if the file name has no suffix.
_RECOGNISED = ("AVIF", "BMP", "GIF", "ICNS", "ICO", "JPEG", "JPEG2000", "PNG", "PSD", "QOI", "TIFF", "WEBP")
# Bytes 8 to 12 of a HEIF file. Files with one of the last two brands may also be AVIF, which Pillow supports.
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
# Number of bytes at the start of a file that determine its format.
START = 16
# Each scan of a progressive JPEG takes as long as a full image, even if it has only 100 bytes. Encoders write about 10.
_MOST_SCANS = 64

# Types that `read_image` accepts: a PIL image, a path, the content of an image file, or an HxWx3 uint8 array.
ImageSource = Image.Image | str | os.PathLike[str] | bytes | bytearray | memoryview | npt.NDArray[Any]

_ORIENTATION_TAG = 0x0112
# Operation that rotates a photo upright, by EXIF orientation (1 is upright).
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UNREADABLE = "image-unreadable"


class TooLargeError(ImageError):
    """Raised if an image has more pixels than allowed."""


class ImageFeatures(Image.Image):
    """Features [D] of an image without pixels, which `Adapter.step` accepts in place of an image.

    >>> import torch
    >>> adapter = ostta.load(ostta.backbones.wrap(None, torch.eye(2)), ["cat", "dog"], "tda")
    >>> adapter.step(ImageFeatures(np.array([0.6, 0.8]))).label
    'dog'
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        super().__init__()
        self.values: npt.NDArray[np.float32] = values.astype(np.float32)


def read_image(source: ImageSource, max_megapixels: float | None = None) -> Image.Image:
    """Read one RGB image from a path, bytes, an HxWx3 uint8 array or a PIL image.

    Raise an Error for images of more than `max_megapixels` (by default 64). Images from paths and bytes are rotated
    according to their EXIF orientation; PIL images are not. Images of more than 16 megapixels are reduced by an integer
    divisor, since the view of a backbone has about 224 pixels per side.
    """
    if isinstance(source, ImageFeatures):
        raise Error("There is no image here, only its features.", code="image-missing")
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
    """Return whether the first bytes of a file (at least `START`) are the signature of an image format.

    >>> is_image_content(b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR"), is_image_content(b"BMW.jpg\\nFord.jpg")
    (True, False)
    """
    if _is_heif(start):
        return True
    if start.startswith(b"BM") and b"\0" not in start:
        return False  # Text may begin with the two letters of the BMP signature.
    Image.init()
    readers = (Image.OPEN[name][1] for name in _RECOGNISED if name in Image.OPEN)
    return any(accepts is not None and bool(accepts(start)) for accepts in readers)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to mode RGB like the PIL image processors of transformers. Transparent parts become white.

    As in Pillow and the processors of the published models, the values of 16-bit grey images are clipped at 255, which
    makes most such images nearly white. Scale them to 8 bits first.
    """
    if image.mode == "RGB" and image.info.get("transparency") is None:
        return image
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _from_path(path: Path, max_megapixels: float | None) -> Image.Image:
    try:
        file = open_regular(path, "image file")
    except Error as problem:
        raise ImageError(str(problem)) from problem
    with file:
        if not os.fstat(file.fileno()).st_size:
            raise ImageError(f"The image file '{path}' is empty.")
        return OpenedImage(file, f"The image file '{path}'", max_megapixels).decode()


def _from_array(array: npt.NDArray[Any], max_megapixels: float | None) -> Image.Image:
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape or array.dtype != np.uint8:
        raise ImageError(
            f"An image array of type {array.dtype} and shape {array.shape} cannot be used: it must be uint8, with "
            "values from 0 to 255, and height x width x 3."
        )
    _check_size((array.shape[1], array.shape[0]), "The given array", max_megapixels)
    return _convert(Image.fromarray(np.ascontiguousarray(array)), "The given array")


class OpenedImage:
    """An image file whose header has been read and checked, but whose pixels have not been decoded.

    `formats` are the Pillow names of the accepted formats, by default all.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str = "The given bytes",
        max_megapixels: float | None = None,
        formats: Collection[str] | None = None,
    ) -> None:
        self._stream, self._name, self._most = stream, name, max_megapixels
        # Pillow raises many types of exceptions for damaged files.
        with translate_errors(_UNREADABLE, f"{name} cannot be read as an image: {{reason}}.", error=ImageError):
            for size in icon_sizes(stream):
                _check_size(size, name, max_megapixels)
            image = _identify(stream, formats)
        if image is None:
            raise ImageError(f"{name} cannot be read as an image: its format is unknown or its header is damaged.")
        _check_size(image.size, name, max_megapixels)
        self._image = image

    @property
    def pixels(self) -> int:
        """Number of pixels according to the header."""
        return self._image.width * self._image.height

    def decode(self) -> Image.Image:
        """Return the upright RGB image."""
        image, name = self._image, self._name
        if is_tiff := isinstance(image, TiffImagePlugin.TiffImageFile):
            # Pillow decodes complete tiles, which may be far larger than the image.
            tile = image.tag_v2.get(TiffImagePlugin.TILEWIDTH), image.tag_v2.get(TiffImagePlugin.TILELENGTH)
            if isinstance(tile[0], int) and isinstance(tile[1], int):
                _check_size((tile[0], tile[1]), f"A tile of {name[0].lower()}{name[1:]}", self._most)
        if image.info.get("progressive") and count_scans(self._stream, _MOST_SCANS) > _MOST_SCANS:
            raise ImageError(
                f"{name} has more than {_MOST_SCANS} scans, which no usual JPEG has: save it again, not progressive."
            )
        message = f"{name} cannot be decoded, it may be damaged or truncated: {{reason}}."
        with translate_errors(_UNREADABLE, message, error=ImageError):
            if is_tiff:
                # Allocate the pixels here, because the reader would check the process-wide pixel limit of Pillow.
                image.im = Image.new(image.mode, getattr(image, "_tile_size", image.size), None).im
            decode_smaller(image)
            image.load()
        # In some formats, the size in the header differs from the size of the decoded image.
        _check_size(image.size, name, self._most)
        # Read the orientation after loading, because Pillow rotates TIFF files itself and removes the tag.
        turn = _UPRIGHT.get(_orientation(image))
        if turn is None:
            return _convert(image, name)
        # Rotate a large image after it is reduced, which needs less memory.
        return _convert(image, name).transpose(turn) if _is_large(image) else _convert(image.transpose(turn), name)


def _identify(stream: IO[bytes], formats: Collection[str] | None) -> Image.Image | None:
    """Open an image without decoding, like `Image.open` but without its size check.

    The limit of that check is lower than the limit of ostta, and it can only be changed for the whole process.
    """
    prefix = stream.read(START)
    tried: set[str] = set()
    # Try the common formats first, because loading all readers of Pillow is slow.
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
                continue  # Readers raise these exceptions for files of other formats.
    return None


def _is_heif(start: bytes) -> bool:
    return start[4:8] == b"ftyp" and start[8:12] in _HEIF_BRANDS


def _load_heif(start: bytes, formats: Collection[str] | None) -> None:
    """Register the HEIF reader with Pillow if the file requires it."""
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
        # Callers without a limit, such as data set readers, do not have this option.
        otherwise = "" if max_megapixels is None else ", or raise the option `max_megapixels`"
        raise TooLargeError(
            f"{name} has {width} x {height} pixels: at most {most:g} megapixels are read, so make it smaller "
            f"first{otherwise}."
        )
    if not width * height:
        raise ImageError(f"{name} has {width} x {height} pixels: it must have at least one.")


def _convert(image: Image.Image, name: str) -> Image.Image:
    # A PIL image may not be decoded yet, so its conversion can fail like that of a file.
    try:
        image.load()
        return in_tiles(image, to_rgb) if _is_large(image) else to_rgb(image)
    except Error:
        raise
    except Exception as problem:
        reason = reason_of(problem)
        raise ImageError(f"{name} (mode {image.mode}) cannot be converted to RGB: {reason}.") from problem


def _is_large(image: Image.Image) -> bool:
    """Return whether an image is converted in tiles."""
    return image.width * image.height > image_limits.PLAIN_PIXELS


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # An image with damaged EXIF data is still usable.
        return 1
