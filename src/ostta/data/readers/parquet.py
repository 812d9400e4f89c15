"""Images in a parquet file, in the layout of the public hubs: a column `image` {bytes, path} and a column `label`."""

from __future__ import annotations

import importlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.types import Error
from ...io import check_regular
from ..class_names import spoken
from ..images import read_image
from .labelled import Images

# Encoded images kept in memory, per file: every set of the benchmark fits; a larger file is read again piece by piece.
_CACHE_BYTES = 512 * 2**20

# How every JPEG file starts.
_JPEG = b"\xff\xd8\xff"

# The public copies of CIFAR say `img`, and CIFAR-100 has coarse labels beside the fine ones.
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label")


def read_parquet(path: Path) -> Images:
    """The images of one file."""
    images = ParquetImages(path)
    labels = images.labels()
    if not len(labels):
        raise Error(f"'{path}' holds no images.")
    return Images(labels, images.image, images.class_names(), jpeg=images.is_jpeg())


class ParquetImages:
    """Random access to the images of one file; row groups are read when first needed and decoded one image at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as problem:
            raise Error(
                'Reading data sets needs the library pyarrow: install it with `pip install "ostta[bench]"`.'
            ) from problem
        check_regular(path, "parquet file")
        try:
            self._file: Any = parquet.ParquetFile(path)
        except Exception as problem:  # Arrow's own exceptions on damaged files have many bases.
            raise Error(f"'{path}' cannot be read as a parquet file: {problem}.") from problem
        schema = self._file.schema_arrow
        self._image = _column(schema.names, IMAGE_COLUMNS, path)
        self._label = _column(schema.names, LABEL_COLUMNS, path)
        kind = str(schema.field(self._image).type)
        if not kind.startswith("struct") or "bytes" not in kind:
            raise Error(
                f"The column '{self._image}' of '{path}' must be a struct of bytes and path, as the datasets library writes."
            )
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._groups: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def labels(self) -> npt.NDArray[np.int64]:
        column = self._file.read(columns=[self._label], use_threads=False).column(self._label)
        values = column.to_numpy()
        # A column with empty cells comes as floats with NaN, so this one check covers both.
        if not np.issubdtype(values.dtype, np.integer):
            raise Error(f"The labels in '{self.path}' must be whole numbers, one for each image.")
        return np.asarray(values, np.int64)

    def class_names(self) -> tuple[str, ...] | None:
        """The names that the `datasets` library left in the file, if it wrote it."""
        try:
            info = json.loads((self._file.schema_arrow.metadata or {})[b"huggingface"])
            return tuple(spoken(name) for name in info["info"]["features"][self._label]["names"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def is_jpeg(self) -> bool:
        """Whether the first image is stored as JPEG: of a set that was published without loss, this is no faithful copy."""
        content = self._bytes_of(0)[0].as_py()
        return content is not None and content.startswith(_JPEG)

    def image(self, row: int) -> Image.Image:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        content = self._bytes_of(group)[row - int(self._starts[group])].as_py()
        if content is None:
            raise Error(
                f"Row {row} of '{self.path}' has no image bytes: the file must hold the images, not only their paths."
            )
        try:
            return read_image(content)
        except Error as problem:
            raise Error(f"Row {row} of '{self.path}': {problem}") from problem

    def _bytes_of(self, group: int) -> Any:
        # An open parquet file has one reading position, so threads take turns.
        with self._lock:
            if group not in self._groups:
                table = self._file.read_row_group(group, columns=[f"{self._image}.bytes"], use_threads=False)
                self._groups[group] = table.column(self._image).combine_chunks().field("bytes")
                while len(self._groups) > 1 and sum(column.nbytes for column in self._groups.values()) > _CACHE_BYTES:
                    del self._groups[next(iter(self._groups))]
            return self._groups[group]


def _column(names: list[str], wanted: tuple[str, ...], path: Path) -> str:
    for name in wanted:
        if name in names:
            return name
    raise Error(f"'{path}' has the columns {', '.join(names)}: it needs 'image' and 'label'.")
