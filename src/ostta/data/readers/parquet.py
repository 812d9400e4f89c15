"""Parquet files in the layout of public hubs, with the columns `image` {bytes, path} and `label`."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ...core.errors import import_extra, translate_errors
from ...io import check_regular
from ..class_names import spoken
from .base import LabelledImages, integer_labels, invalid, read_part

# Maximum cache size of encoded images per file. Every benchmark data set fits; larger files are read repeatedly.
_CACHE_BYTES = 512 * 2**20
# First bytes of every JPEG file.
_JPEG = b"\xff\xd8\xff"

# Public copies of CIFAR use the column `img`. CIFAR-100 has coarse labels in addition to the fine labels.
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label")


def read_parquet(path: Path) -> LabelledImages:
    """Read the images of one file."""
    images = ParquetImages(path)
    return LabelledImages(images.labels(), images.image, images.class_names(), jpeg=images.is_jpeg())


class ParquetImages:
    """Random access to the images of one file.

    Row groups are read on first use, and images are decoded one at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        parquet = import_extra("pyarrow.parquet", "Reading data sets", "bench")
        check_regular(path, "parquet file")
        # Arrow raises many types of exceptions for damaged files.
        with translate_errors("dataset-invalid", f"'{path}' cannot be read as a parquet file: {{reason}}."):
            self._file: Any = parquet.ParquetFile(path)
        schema = self._file.schema_arrow
        self._image = _column(schema.names, IMAGE_COLUMNS, path)
        self._label = _column(schema.names, LABEL_COLUMNS, path)
        kind = str(schema.field(self._image).type)
        if not kind.startswith("struct") or "bytes" not in kind:
            raise invalid(
                f"The column '{self._image}' of '{path}' must be a struct of bytes and path, as the datasets library "
                "writes."
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
        return integer_labels(column.to_numpy(), self.path)

    def class_names(self) -> tuple[str, ...] | None:
        """Return the class names in the metadata of the `datasets` library, or None if there are none."""
        try:
            info = json.loads((self._file.schema_arrow.metadata or {})[b"huggingface"])
            return tuple(spoken(name) for name in info["info"]["features"][self._label]["names"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def is_jpeg(self) -> bool:
        """Return whether the first image is stored as JPEG, so that a copy of a lossless data set is not exact."""
        content = self._bytes_of(0)[0].as_py()
        return content is not None and content.startswith(_JPEG)

    def image(self, row: int) -> Image.Image:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        return read_part(self._bytes_of(group)[row - int(self._starts[group])].as_py(), f"Row {row} of '{self.path}'")

    def _bytes_of(self, group: int) -> Any:
        # Threads cannot read from the same open parquet file concurrently.
        with self._lock:
            if group not in self._groups:
                table = self._file.read_row_group(group, columns=[f"{self._image}.bytes"], use_threads=False)
                self._groups[group] = table.column(self._image).combine_chunks().field("bytes")
                while len(self._groups) > 1 and sum(column.nbytes for column in self._groups.values()) > _CACHE_BYTES:
                    del self._groups[next(iter(self._groups))]
            return self._groups[group]


def _column(names: list[str], candidates: tuple[str, ...], path: Path) -> str:
    for name in candidates:
        if name in names:
            return name
    raise invalid(f"'{path}' has the columns {', '.join(names)}: it needs 'image' and 'label'.")
