"""SVHN's original files: MATLAB 5, one compressed array of all images."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from ...core.types import Error
from ...io import check_regular
from .labelled import Images

_SIDE = 32
_CHUNK = 4096


def read_mat(path: Path) -> Images:
    """The 32x32 digits of `path`. The array passes through memory once, into an unnamed temporary file that is mapped."""
    try:
        loadmat = importlib.import_module("scipy.io").loadmat
    except ImportError as problem:
        raise Error(
            'Reading .mat files needs the library scipy: install it with `pip install "ostta[bench]"`.'
        ) from problem
    check_regular(path, "MATLAB file")
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as problem:  # scipy's reader raises many kinds on a damaged file.
        raise Error(f"'{path}' cannot be read as a MATLAB file: {problem}.") from problem
    if "X" not in content or "y" not in content:
        raise Error(f"'{path}' has no arrays X and y: the official files of SVHN's cropped digits have both.")
    pixels, digits = content["X"], np.ravel(content["y"])
    if pixels.ndim != 4 or pixels.shape[:3] != (_SIDE, _SIDE, 3) or pixels.dtype != np.uint8:
        raise Error(
            f"X in '{path}' is {pixels.dtype} {list(pixels.shape)}: the official files have uint8 [32, 32, 3, n]."
        )
    if len(digits) != pixels.shape[3] or not np.isin(digits, range(1, 11)).all():
        raise Error(f"y in '{path}' must have a number from 1 to 10 for each of the {pixels.shape[3]} images.")
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, np.uint8, "w+", shape=(len(digits), _SIDE, _SIDE, 3))
    for start in range(0, len(digits), _CHUNK):
        mapped[start : start + _CHUNK] = np.moveaxis(pixels[..., start : start + _CHUNK], 3, 0)
    # MATLAB counts from one, so the digit 0 has the label 10.
    labels = np.array(digits % 10, np.int64)
    return Images(labels, lambda i: Image.fromarray(np.array(mapped[i])))
