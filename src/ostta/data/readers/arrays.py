"""Data sets stored as one large array: CIFAR-10-C and CIFAR-100-C (npy), MNIST (idx) and SVHN (MATLAB)."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.errors import import_extra, translate_errors
from ...io import check_regular, open_regular
from .base import LabelledImages, invalid, require_beside

# Each official file of CIFAR-10-C contains the 10,000 test images at severity 1, then at severity 2, and so on.
ROWS = 10_000
# Magic number of an idx file of unsigned bytes. The number of dimensions is added to it.
_IDX_BYTES = 0x0800
_SVHN_SIDE = 32
_CHUNK = 4096


def read_cifar_c(path: Path, severity: int) -> LabelledImages:
    """Read the 10,000 images of one severity, memory-mapped."""
    label_path = require_beside(path, "labels.npy")
    message = f"The official files '{path}' and labels.npy cannot be read: {{reason}}."
    with translate_errors("dataset-invalid", message, OSError, ValueError, EOFError):
        images = np.load(path, mmap_mode="r", allow_pickle=False)
        labels = np.load(label_path, mmap_mode="r", allow_pickle=False)
    for file, array, shape, kind in ((path, images, (32, 32, 3), np.uint8), (label_path, labels, (), np.integer)):
        if array.shape != (5 * ROWS, *shape) or not np.issubdtype(array.dtype, kind):
            raise invalid(
                f"'{file}' has {array.dtype} {list(array.shape)}: the official file has {kind.__name__} "
                f"{[5 * ROWS, *shape]}."
            )
    rows = slice((severity - 1) * ROWS, severity * ROWS)
    pixels = images[rows]
    return LabelledImages(np.array(labels[rows], np.int64), lambda i: Image.fromarray(np.array(pixels[i])))


def read_idx(path: Path) -> LabelledImages:
    """Read the images of an idx3 file, memory-mapped, with the labels of the idx1 file in the same folder."""
    labels_path = require_beside(path, labels_name(path.name))
    pixels, labels = _idx_array(path, 3), _idx_array(labels_path, 1)
    if len(pixels) != len(labels):
        raise invalid(f"'{path}' has {len(pixels)} images, but '{labels_path.name}' has {len(labels)} labels.")
    return LabelledImages(np.array(labels, np.int64), lambda i: Image.fromarray(np.array(pixels[i])).convert("RGB"))


def read_own_idx(path: Path) -> LabelledImages:
    """Read a user idx file. The name of the label file is inferred from its name."""
    if path.is_dir():
        inside = sorted(item.name for item in path.iterdir() if labels_name(item.name) != item.name)
        names = f"it has {', '.join(inside[:4])}" if inside else "it has none whose name contains images or idx3"
        raise invalid(f"'{path}' is a folder: give the path of the file of images in it ({names}).")
    check_regular(path, "idx file")
    if labels_name(path.name) == path.name:
        raise invalid(
            f"The file of labels of '{path}' is unknown: name the two files like those of MNIST, such as "
            "mine-images-idx3-ubyte and mine-labels-idx1-ubyte."
        )
    images = read_idx(path)
    if not len(images.labels):
        raise invalid(f"'{path}' has no images.")
    return images


def labels_name(name: str) -> str:
    """Return the label file name for an image file name, or the same name if it cannot be inferred.

    >>> labels_name("train-images-idx3-ubyte"), labels_name("train-images.idx3-ubyte")
    ('train-labels-idx1-ubyte', 'train-labels.idx1-ubyte')
    """
    return name.replace("images", "labels").replace("idx3", "idx1")


def _idx_array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    start = 4 + 4 * dimensions
    with translate_errors("dataset-invalid", f"'{path}' cannot be read: {{reason}}.", OSError, ValueError):
        with open_regular(path, "idx file") as file:
            header = file.read(start)
        if len(header) < start or struct.unpack(">I", header[:4])[0] != _IDX_BYTES + dimensions:
            raise invalid(f"'{path}' is not an idx{dimensions} file of bytes: unpack it first if it is compressed.")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        expected = start + math.prod(shape)
        if path.stat().st_size != expected:
            raise invalid(f"'{path}' has {path.stat().st_size} bytes, but its header promises {expected}.")
        return np.memmap(path, np.uint8, "r", start, shape)


def read_mat(path: Path) -> LabelledImages:
    """Read the cropped digits of SVHN.

    The array is loaded into memory once and written to an unnamed temporary file, which is then memory-mapped.
    """
    loadmat = import_extra("scipy.io", "Reading .mat files", "bench").loadmat
    check_regular(path, "MATLAB file")
    # scipy raises many types of exceptions for damaged files.
    with translate_errors("dataset-invalid", f"'{path}' cannot be read as a MATLAB file: {{reason}}."):
        content = loadmat(path, variable_names=["X", "y"])
    if "X" not in content or "y" not in content:
        raise invalid(f"'{path}' has no arrays X and y, which the official files of the cropped digits have.")
    pixels, digits = content["X"], np.ravel(content["y"])
    if pixels.ndim != 4 or pixels.shape[:3] != (_SVHN_SIDE, _SVHN_SIDE, 3) or pixels.dtype != np.uint8:
        raise invalid(
            f"X in '{path}' is {pixels.dtype} {list(pixels.shape)}: the official files have uint8 [32, 32, 3, n]."
        )
    if len(digits) != pixels.shape[3] or not np.isin(digits, range(1, 11)).all():
        raise invalid(f"y in '{path}' must have a number from 1 to 10 for each of the {pixels.shape[3]} images.")
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, np.uint8, "w+", shape=(len(digits), _SVHN_SIDE, _SVHN_SIDE, 3))
    for start in range(0, len(digits), _CHUNK):
        mapped[start : start + _CHUNK] = np.moveaxis(pixels[..., start : start + _CHUNK], 3, 0)
    # Labels in MATLAB start at 1, so the digit 0 has the label 10.
    return LabelledImages(np.array(digits % 10, np.int64), lambda i: Image.fromarray(np.array(mapped[i])))
