"""The class `Dataset`: images with labels, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..core.types import Error


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels. `labels` index `classes`; `image(i)` decodes one image.

    `origin` says where the pixels come from: "official" (the published images, all of them), "generated" (a corruption made
    here), "embedded" (the sample that ships), else the form of the files: "parquet", "folder", "list", "idx", "mat", "shards",
    "hub" or "disk". `note` is what a reader of figures on this set should be told, or empty. `layout` is where it was found.
    `files` has the file of each image, where each has its own.
    """

    name: str
    classes: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    origin: str
    note: str
    _read: Callable[[int], Image.Image] = field(repr=False)
    layout: str = ""
    files: Sequence[Path] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, i: int) -> Image.Image:
        """Image number `i`, in mode RGB."""
        if not 0 <= i < len(self):
            raise Error(f"There is no image number {i} in '{self.name}', which has images 0 to {len(self) - 1}.")
        return self._read(int(i))
