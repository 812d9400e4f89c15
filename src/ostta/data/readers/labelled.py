"""The class `Images`, which every reader gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.types import Error
from ..images import read_image

Labels = npt.NDArray[np.int64]

# Where a set is listed class by class, its order is this one permutation of the list, so that any first part of it is a fair
# sample; the published loaders shuffle those lists too. It has nothing to do with the seed of a run.
_ORDER_SEED = 0


@dataclass(frozen=True, eq=False)
class Images:
    """Labels in order, and how to decode image number i.

    `names` are class names that the files themselves state; `jpeg` says that the first image of a table is stored as JPEG.
    """

    labels: Labels
    read: Callable[[int], Image.Image]
    names: tuple[str, ...] | None = None
    files: Sequence[Path] = ()
    jpeg: bool = False

    def mixed(self) -> Images:
        """The same images in an order that no longer goes class by class; a function of their number alone."""
        order = np.random.default_rng(_ORDER_SEED).permutation(len(self.labels))
        if self.files:
            return replace(of_files([self.files[i] for i in order], self.labels[order]), names=self.names)
        return replace(self, labels=self.labels[order], read=lambda i: self.read(int(order[i])))


def of_files(files: Sequence[Path], labels: Sequence[int] | Labels) -> Images:
    """Images that have a file each."""
    return Images(np.array(labels, np.int64), lambda i: read_image(files[i]), files=files)


def check_labels(labels: Labels, classes: Sequence[str], where: object) -> None:
    """Raise an Error unless every label has a name."""
    wrong = labels[(labels < 0) | (labels >= len(classes))]
    if len(wrong):
        raise Error(
            f"'{where}' has the label {wrong[0]}, but there are {len(classes)} class names: "
            f"labels must be from 0 to {len(classes) - 1}."
        )
