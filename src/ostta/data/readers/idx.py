"""The form of MNIST's original files: idx, a header of big-endian numbers and then the bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.types import Error
from ...io import open_regular
from .labelled import Images

# Two zero bytes, 8 for unsigned bytes, and the number of dimensions.
_BYTES_OF = 0x0800


def read_idx(path: Path) -> Images:
    """The images of an idx3 file, memory-mapped, with the labels of the idx1 file beside it."""
    labels_path = path.with_name(labels_name(path.name))
    if not labels_path.is_file():
        raise Error(f"'{path}' is there but its labels are not: put {labels_path.name} in the same folder.")
    pixels, labels = _array(path, 3), _array(labels_path, 1)
    if len(pixels) != len(labels):
        raise Error(f"'{path}' has {len(pixels)} images, but '{labels_path.name}' has {len(labels)} labels.")
    return Images(np.array(labels, np.int64), lambda i: Image.fromarray(np.array(pixels[i])).convert("RGB"))


def read_own_idx(path: Path) -> Images:
    """A person's own file, whose name may be anything that says which file has the labels."""
    if path.is_dir():
        inside = sorted(item.name for item in path.iterdir() if labels_name(item.name) != item.name)
        has = f"it has {', '.join(inside[:4])}" if inside else "it has none whose name says images or idx3"
        raise Error(f"'{path}' is a folder: name the file of images in it ({has}).")
    if not path.exists():
        raise Error(f"There is no idx file '{path}'.")
    if labels_name(path.name) == path.name:
        raise Error(
            f"Which file has the labels of '{path}' is unknown: call the two as MNIST's are called, such as "
            "mine-images-idx3-ubyte and mine-labels-idx1-ubyte."
        )
    images = read_idx(path)
    if not len(images.labels):
        raise Error(f"'{path}' holds no images.")
    return images


def labels_name(name: str) -> str:
    """The name of the file of labels that belongs to a file of images; the same name where it does not say.

    >>> labels_name("train-images-idx3-ubyte"), labels_name("train-images.idx3-ubyte")
    ('train-labels-idx1-ubyte', 'train-labels.idx1-ubyte')
    """
    return name.replace("images", "labels").replace("idx3", "idx1")


def _array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    start = 4 + 4 * dimensions
    try:
        with open_regular(path, "idx file") as file:
            header = file.read(start)
        if len(header) < start or struct.unpack(">I", header[:4])[0] != _BYTES_OF + dimensions:
            raise Error(f"'{path}' is not an idx{dimensions} file of bytes: unpack it first if it is compressed.")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        expected = start + math.prod(shape)
        if path.stat().st_size != expected:
            raise Error(f"'{path}' has {path.stat().st_size} bytes, but its header promises {expected}.")
        return np.memmap(path, np.uint8, "r", start, shape)
    except (OSError, ValueError) as problem:
        raise Error(f"'{path}' cannot be read: {problem}.") from problem
