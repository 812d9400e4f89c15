"""The class `Dataset`, and fingerprints of files.

A fingerprint depends on the size and the bytes of a file, not on its name, folder or modification time. Copies of a
data set on several machines have the same fingerprints.
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
from PIL import Image

from ..core.types import Error
from ..io import open_regular

# Number of images that are decoded to identify a data set that has no files.
_DECODED = 16
# A file of up to BLOCKS * BLOCK_SIZE bytes is read in full; of a larger file, this many blocks at equal distances.
BLOCKS, BLOCK_SIZE = 16, 4096


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels. `labels` are indices into `classes`; `image(i)` decodes one image.

    origin:     origin of the pixels: "official" (all published images), "generated" (a corruption computed here),
                "embedded" (the included sample), else the form of the files: "parquet", "folder", "list", "idx", "mat",
                "shards", "hub", "disk" or "features".
    note:       remark for readers of figures on this set, or an empty text.
    layout:     path or hub id that the set was read from.
    files:      the file of each image, if each image has its own file.
    condition:  identifies the corruption of the images: its name, severity and, if it is computed here, its seed and
                textures. For a feature file, the hash of the content.
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

        The content is that of the image files, else of the file or folder that the set was read from. A set without
        files is identified by the pixels of up to 16 of the images.
        """
        digest = hashlib.sha256(json.dumps([self.origin, self.condition]).encode())
        digest.update(self.labels[numbers].astype("<i8").tobytes())
        # The layout of a set of the hub is not a path.
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
        # The run that reads the file reports the problem.
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
