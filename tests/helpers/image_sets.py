"""Image sets made in memory, and files in the formats of published sets."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image


@dataclass(eq=False)
class NumberedImages:
    """`count` images of one shade and three classes. `reads` are the numbers of the images that were read."""

    name: str
    count: int
    shade: int = 0
    reads: list[int] = field(default_factory=list)

    @property
    def labels(self) -> np.ndarray:
        return np.arange(self.count) % 3

    def __len__(self) -> int:
        return self.count

    def image(self, index: int) -> Image.Image:
        self.reads.append(index)
        return Image.new("RGB", (2, 2), (self.shade, index % 256, 0))


def write_idx(folder: Path, prefix: str, pixels: np.ndarray, labels: list[int]) -> Path:
    """Write the files of images and labels in the format of MNIST, and return the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    images = folder / f"{prefix}-images-idx3-ubyte"
    images.write_bytes(struct.pack(">IIII", 2051, *pixels.shape) + pixels.astype(np.uint8).tobytes())
    (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(labels)) + bytes(labels))
    return images


def fill(root: Path, **counts: int) -> Path:
    """Make a folder with `counts` different images of each class."""
    for number, (name, count) in enumerate(counts.items()):
        folder = root / name
        folder.mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (8 + number, 8), (i % 256, i // 256, number)).save(folder / f"{i:04}.png")
    return root
