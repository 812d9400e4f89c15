"""The class `Dataset`, and fingerprints of files.

A fingerprint depends on the size and content of a file, not on its name, folder or modification time, so copies of a
data set on different machines have the same fingerprints.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from PIL import Image

from ..core.types import Error
from ..io import open_regular

# Number of images that are decoded to identify a data set without files.
_DECODED = 16
# Files of up to BLOCKS * BLOCK_SIZE bytes are read in full. From larger files, BLOCKS evenly spaced blocks are read.
BLOCKS, BLOCK_SIZE = 16, 4096


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels. `labels` are indices into `classes`; `image(i)` decodes one image.

    origin:     origin of the pixels: "official" (all published images), "generated" (a corruption computed here),
                "embedded" (the included sample), or the file format: "parquet", "folder", "list", "idx", "mat",
                "shards", "hub", "disk" or "features".
    note:       remark for result tables, or an empty string.
    layout:     path or hub id that the data set was read from.
    files:      path of each image, if the images are separate files.
    rows:       row of each image in its file, if the data set has only some rows of the file. Records have these rows
                instead of positions, so that known and unknown images of one file have different numbers.
    condition:  identifier of the corruption: name, severity and, if it is computed here, seed and textures. For a
                feature file, the hash of the content.
    """

    name: str
    classes: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    origin: str
    note: str
    _read: Callable[[int], Image.Image] = field(repr=False)
    layout: str = ""
    files: Sequence[Path] = field(default=(), repr=False)
    condition: str = ""
    rows: Sequence[int] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, i: int) -> Image.Image:
        """Return image number `i` in mode RGB."""
        if not 0 <= i < len(self):
            message = f"There is no image number {i} in '{self.name}', which has images 0 to {len(self) - 1}."
            raise Error(message, code="image-not-found")
        return self._read(int(i))

    def fingerprint(self, numbers: npt.NDArray[np.int64]) -> str:
        """Return a hash of the images with these numbers: their origin, condition, labels and content.

        The content is that of the image files, or of the file or folder that the data set was read from. A data set
        without files is identified by the pixels of up to 16 images.
        """
        digest = hashlib.sha256(json.dumps([self.origin, self.condition]).encode())
        digest.update(self.labels[numbers].astype("<i8").tobytes())
        # The layout of a hub data set is not a path.
        path = Path(self.layout) if self.layout and not self.name.startswith(("hub:", "hubc:")) else None
        if self.files:
            for number in numbers.tolist():
                digest.update(file_fingerprint(self.files[number]).encode())
        elif path is not None and path.is_file():
            digest.update(file_fingerprint(path).encode())
        elif path is not None and path.is_dir():
            digest.update(folder_fingerprint(path).encode())
        else:
            for number in numbers[:: -(-len(numbers) // _DECODED) or 1].tolist():
                image = self.image(number)
                digest.update(json.dumps(image.size).encode() + image.tobytes())
        return digest.hexdigest()


def file_fingerprint(path: Path) -> str:
    """Return a hash of the size and the content of a file, or "unreadable".

    At most 64 KiB are read. Fingerprints are cached until the size or the modification time of the file changes.
    """
    try:
        status = os.stat(path)
        return _fingerprint(os.fspath(path), status.st_size, status.st_mtime_ns)
    except (OSError, ValueError, Error):
        # The error is reported when the run reads the file.
        return "unreadable"


def folder_fingerprint(folder: Path) -> str:
    """Return a hash of the relative paths and the fingerprints of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = os.fsencode(path.relative_to(folder).as_posix())
        digest.update(name + b"\0" + file_fingerprint(path).encode() + b"\0")
    return digest.hexdigest()


@lru_cache(maxsize=2**17)
def _fingerprint(path: str, size: int, modified: int) -> str:
    digest = hashlib.sha256(str(size).encode() + b"\0")
    with open_regular(Path(path), "data set file") as file:
        if size <= BLOCKS * BLOCK_SIZE:
            digest.update(file.read(BLOCKS * BLOCK_SIZE))
        else:
            for number in range(BLOCKS):
                file.seek(number * (size - BLOCK_SIZE) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_SIZE))
    return digest.hexdigest()


def balanced(labels: NDArray[np.int64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the sorted indices of up to `count` entries of `labels`, as balanced over the classes as possible.

    A smaller `count` with the same state of `generator` selects a subset.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> np.bincount(labels[balanced(labels, 4, np.random.default_rng(0))])
    array([2, 2])
    """
    order = generator.permutation(len(labels))
    mixed = np.asarray(labels)[order]
    # Take the first entry of each class, then the second of each class, and so on.
    by_class = np.argsort(mixed, kind="stable")
    starts = np.searchsorted(mixed[by_class], mixed[by_class], side="left")
    turn = np.empty(len(order), np.int64)
    turn[by_class] = np.arange(len(order)) - starts
    return np.sort(order[np.argsort(turn, kind="stable")[:count]])
