"""The class `Images`, which every reader returns, and the errors of readers."""

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

# Sets that are listed class by class are permuted, so that any first part of them is a fair sample. The published
# loaders shuffle these lists too. The permutation does not depend on the seed of a run.
_ORDER_SEED = 0


@dataclass(frozen=True, eq=False)
class Images:
    """Labels in order, and a function that decodes image number i.

    `names` are class names stored in the files; `jpeg` tells whether the first image of a table is stored as JPEG.
    """

    labels: Labels
    read: Callable[[int], Image.Image]
    names: tuple[str, ...] | None = None
    files: Sequence[Path] = ()
    jpeg: bool = False

    def mixed(self) -> Images:
        """Return the same images in an order that is not sorted by class; it depends on their number only."""
        order = np.random.default_rng(_ORDER_SEED).permutation(len(self.labels))
        if self.files:
            return replace(of_files([self.files[i] for i in order], self.labels[order]), names=self.names)
        return replace(self, labels=self.labels[order], read=lambda i: self.read(int(order[i])))


def of_files(files: Sequence[Path], labels: Sequence[int] | Labels) -> Images:
    """Return images of which each has its own file."""
    return Images(np.array(labels, np.int64), lambda i: read_image(files[i]), files=files)


def invalid(message: str) -> Error:
    """Return the error of a data set whose files do not have the expected content."""
    return Error(message, code="dataset-invalid")


def read_cell(content: bytes | str | None, row: int, where: object) -> Image.Image:
    """Decode the image in a row of a table."""
    if content is None:
        raise invalid(
            f"Row {row} of '{where}' has no image bytes: the file must contain the images, not only their paths."
        )
    try:
        return read_image(content)
    except Error as problem:
        raise Error(f"Row {row} of '{where}': {problem}", code=problem.code) from problem


def integer_labels(values: npt.NDArray[np.generic], where: object) -> Labels:
    """Return the label column of a table, which must have one integer per image and at least one image."""
    # A column with empty cells is converted to floats with NaN.
    if not len(values) or not np.issubdtype(values.dtype, np.integer):
        raise invalid(f"'{where}' must have at least one image, and an integer label for each image.")
    return np.asarray(values, np.int64)


def check_labels(labels: Labels, classes: Sequence[str], where: object) -> None:
    """Raise an Error unless every label has a class name."""
    wrong = labels[(labels < 0) | (labels >= len(classes))]
    if len(wrong):
        raise invalid(
            f"'{where}' has the label {wrong[0]}, but there are {len(classes)} class names: "
            f"labels must be from 0 to {len(classes) - 1}."
        )
