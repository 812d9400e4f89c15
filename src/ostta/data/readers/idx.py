"""MNIST's original files: idx, a header of big-endian numbers and then the bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.types import Error
from ...regular_files import open_regular
from .labelled import Images

# Two zero bytes, 8 for unsigned bytes, and the number of dimensions.
_BYTES_OF = 0x0800


def read_idx(path: Path) -> Images:
    """The images of an idx3 file, memory-mapped, with the labels of the idx1 file beside it."""
    labels_path = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if not labels_path.is_file():
        raise Error(f"'{path}' is there but its labels are not: put {labels_path.name} in the same folder.")
    pixels, labels = _array(path, 3), _array(labels_path, 1)
    if len(pixels) != len(labels):
        raise Error(f"'{path}' has {len(pixels)} images, but '{labels_path.name}' has {len(labels)} labels.")
    return Images(np.array(labels, np.int64), lambda i: Image.fromarray(np.array(pixels[i])).convert("RGB"))


def _array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    start = 4 + 4 * dimensions
    try:
        with open_regular(path, "idx file") as file:
            header = file.read(start)
        if len(header) < start or struct.unpack(">I", header[:4])[0] != _BYTES_OF + dimensions:
            raise Error(f"'{path}' is not an idx{dimensions} file of bytes: unpack it first if it is compressed.")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        expected = start + int(np.prod(shape))
        if path.stat().st_size != expected:
            raise Error(f"'{path}' has {path.stat().st_size} bytes, but its header promises {expected}.")
        return np.memmap(path, np.uint8, "r", start, shape)
    except (OSError, ValueError) as problem:
        raise Error(f"'{path}' cannot be read: {problem}.") from problem
