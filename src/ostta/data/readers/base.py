"""The class `LabelledImages`, which every reader returns, and errors of readers."""

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

# Data sets that are sorted by class are shuffled, so that any prefix is a representative sample. The published loaders
# also shuffle them. The permutation does not depend on the seed of a run.
_ORDER_SEED = 0


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Labels in order, and a function that decodes image number i.

    `names` are class names stored in the files. `jpeg` is True if the first image of a table is stored as JPEG.
    """

    labels: Labels
    read: Callable[[int], Image.Image]
    names: tuple[str, ...] | None = None
    files: Sequence[Path] = ()
    jpeg: bool = False

    def mixed(self) -> LabelledImages:
        """Return the images in a shuffled order that depends only on their number."""
        order = np.random.default_rng(_ORDER_SEED).permutation(len(self.labels))
        if self.files:
            return replace(of_files([self.files[i] for i in order], self.labels[order]), names=self.names)
        return replace(self, labels=self.labels[order], read=lambda i: self.read(int(order[i])))


def of_files(files: Sequence[Path], labels: Sequence[int] | Labels) -> LabelledImages:
    """Return images that are stored as separate files."""
    return LabelledImages(np.array(labels, np.int64), lambda i: read_image(files[i]), files=files)


def invalid(message: str) -> Error:
    """Return the error for a data set with unexpected file content."""
    return Error(message, code="dataset-invalid")


def read_part(content: bytes | str | None, part: str) -> Image.Image:
    """Decode an image that is stored in a larger file. `part` names it in messages, such as "Row 3 of 'a.parquet'"."""
    if content is None:
        raise invalid(f"{part} has no image bytes: the file must contain the images, not only their paths.")
    try:
        return read_image(content)
    except Error as problem:
        # Not an `ImageError`, which `Adapter.stream` would skip: a data set must be complete.
        raise Error(f"{part}: {problem}", code=problem.code) from problem


def require_folder(folder: Path) -> None:
    """Raise an Error unless `folder` is a folder."""
    if not folder.is_dir():
        raise Error(f"There is no folder '{folder}'.", code="file-not-found")


def require_beside(path: Path, name: str) -> Path:
    """Return the file of labels `name` in the folder of `path`. Raise an Error if it does not exist."""
    labels = path.with_name(name)
    if not labels.is_file():
        raise invalid(f"'{path}' has no labels: put {name} in the same folder.")
    return labels


def integer_labels(values: npt.NDArray[np.generic], where: object) -> Labels:
    """Return the label column of a table. Raise an Error if it is empty or contains values that are not integers."""
    # A column with empty cells has a float type, with NaN for empty cells.
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
