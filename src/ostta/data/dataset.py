"""The class `Dataset`: images with labels, wherever they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..core.types import Error
from .fingerprint import file_fingerprint, folder_fingerprint

# Images that are decoded to identify a data set that has no files.
_DECODED = 16


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels. `labels` index `classes`; `image(i)` decodes one image.

    `origin` says where the pixels come from: "official" (the published images, all of them), "generated" (a corruption made
    here), "embedded" (the sample that ships), else the form of the files: "parquet", "folder", "list", "idx", "mat", "shards",
    "hub", "disk" or "features". `note` is what a reader of figures on this set should be told, or empty. `layout` is where it was found.
    `files` has the file of each image, where each has its own. `condition` identifies the corruption of the images: its name,
    severity and, where it is made here, its seed and textures; of a feature file it is the hash of the content.
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
        """Image number `i`, in mode RGB."""
        if not 0 <= i < len(self):
            raise Error(f"There is no image number {i} in '{self.name}', which has images 0 to {len(self) - 1}.")
        return self._read(int(i))

    def fingerprint(self, numbers: npt.NDArray[np.int64]) -> str:
        """Return a hash of the images with these numbers: their origin, condition, labels and content.

        The content is that of the image files, else of the file or folder that the set was read from. A set without files is
        identified by the pixels of up to 16 of the images.
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
