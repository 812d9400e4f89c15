"""The official files of CIFAR-10-C and CIFAR-100-C: one array per corruption, all five severities in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ...core.types import Error
from .labelled import Images

# Each official file has the 10,000 test images at severity 1, then at severity 2, and so on.
ROWS = 10_000


def read_cifar_c(path: Path, severity: int) -> Images:
    """The 10,000 images of one severity, memory-mapped: always that slice, however few are used of it."""
    label_path = path.with_name("labels.npy")
    if not label_path.is_file():
        raise Error(f"'{path}' is there but its labels are not: put labels.npy in the same folder.")
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
        labels = np.load(label_path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise Error(f"The official files '{path}' and labels.npy cannot be read: {problem}.") from problem
    if images.shape != (5 * ROWS, 32, 32, 3) or images.dtype != np.uint8:
        raise Error(
            f"'{path}' has {images.dtype} {list(images.shape)}: the official files have uint8 [50000, 32, 32, 3]."
        )
    if labels.shape != (5 * ROWS,) or not np.issubdtype(labels.dtype, np.integer):
        raise Error(
            f"'{label_path}' has {labels.dtype} {list(labels.shape)}: the official file has 50000 whole numbers."
        )
    rows = slice((severity - 1) * ROWS, severity * ROWS)
    pixels = images[rows]
    return Images(np.array(labels[rows], np.int64), lambda i: Image.fromarray(np.array(pixels[i])))
