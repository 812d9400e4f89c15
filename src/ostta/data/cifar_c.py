"""CIFAR-10-C and CIFAR-100-C: the official files where they are, else the clean test set with our corruptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..core.types import Error
from .corruptions import corruption_names

# Each official file has the 10,000 test images at severity 1, then at severity 2, and so on.
ROWS = 10_000

# The fifteen corruptions of the benchmark and the official file of each.
OFFICIAL_FILES = {
    "gaussian_noise": "gaussian_noise.npy",
    "shot_noise": "shot_noise.npy",
    "impulse_noise": "impulse_noise.npy",
    "defocus_blur": "defocus_blur.npy",
    "glass_blur": "glass_blur.npy",
    "motion_blur": "motion_blur.npy",
    "zoom_blur": "zoom_blur.npy",
    "snow": "snow.npy",
    "frost": "frost.npy",
    "fog": "fog.npy",
    "brightness": "brightness.npy",
    "contrast": "contrast.npy",
    "elastic": "elastic_transform.npy",
    "pixelate": "pixelate.npy",
    "jpeg": "jpeg_compression.npy",
}


def official_path(folder: Path, corruption: str) -> Path | None:
    """The official file of `corruption` in `folder`, if it is there; an Error if there is no way to have that corruption."""
    path = folder / OFFICIAL_FILES[corruption] if corruption in OFFICIAL_FILES else None
    if path is not None and path.is_file():
        return path
    if corruption in corruption_names():
        return None
    can = ", ".join(corruption_names())
    if path is None:
        others = ", ".join(name for name in OFFICIAL_FILES if name not in corruption_names())
        raise Error(
            f"There is no corruption '{corruption}': choose one of {can}, or with the official files also {others}."
        )
    raise Error(
        f"The corruption '{corruption}' cannot be made here (those that can: {can}), "
        f"and its official file ROOT/{folder.name}/{path.name} is not there."
    )


def read_official(path: Path, severity: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (memory-mapped) and labels at one severity: always the slice of 10,000, however few are used of it."""
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
    return images[rows], np.array(labels[rows], np.int64)
