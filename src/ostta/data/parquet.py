"""Images in a parquet file, in the layout of the public hubs: a column `image` {bytes, path} and a column `label`."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ostta.core.types import Error
from ostta.data.class_names import spoken
from ostta.data.images import read_image

# Encoded images kept in memory, per file: every set of the benchmark fits; a larger file is read again piece by piece.
_CACHE_BYTES = 512 * 2**20


class ParquetImages:
    """Random access to the images of one file; row groups are read when first needed and decoded one image at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as problem:
            raise Error(
                "reading data sets needs the library pyarrow: install it with `pip install pyarrow`"
            ) from problem
        try:
            self._file: Any = parquet.ParquetFile(path)
        except FileNotFoundError:
            raise Error(f"there is no parquet file '{path}'") from None
        except Exception as problem:  # Arrow's own exceptions on damaged files have many bases.
            raise Error(f"'{path}' cannot be read as a parquet file: {problem}") from problem
        schema = self._file.schema_arrow
        if not {"image", "label"} <= set(schema.names):
            raise Error(f"'{path}' has the columns {', '.join(schema.names)}: it needs 'image' and 'label'")
        if not str(schema.field("image").type).startswith("struct") or "bytes" not in str(schema.field("image").type):
            raise Error(
                f"the column 'image' of '{path}' must be a struct of bytes and path, as the datasets library writes"
            )
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._groups: dict[int, Any] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def labels(self) -> npt.NDArray[np.int64]:
        column = self._file.read(columns=["label"], use_threads=False).column("label")
        values = column.to_numpy()
        # A column with empty cells comes as floats with NaN, so this one check covers both.
        if not np.issubdtype(values.dtype, np.integer):
            raise Error(f"the labels in '{self.path}' must be whole numbers, one for each image")
        return np.asarray(values, np.int64)

    def class_names(self) -> tuple[str, ...] | None:
        """The names that the `datasets` library left in the file, if it wrote it."""
        try:
            info = json.loads((self._file.schema_arrow.metadata or {})[b"huggingface"])
            return tuple(spoken(name) for name in info["info"]["features"]["label"]["names"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def image(self, row: int) -> Image.Image:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        content = self._bytes_of(group)[row - int(self._starts[group])].as_py()
        if content is None:
            raise Error(
                f"row {row} of '{self.path}' has no image bytes: the file must hold the images, not only their paths"
            )
        try:
            return read_image(content)
        except Error as problem:
            raise Error(f"row {row} of '{self.path}': {problem}") from problem

    def _bytes_of(self, group: int) -> Any:
        if group not in self._groups:
            table = self._file.read_row_group(group, columns=["image.bytes"], use_threads=False)
            self._groups[group] = table.column("image").combine_chunks().field("bytes")
            while len(self._groups) > 1 and sum(column.nbytes for column in self._groups.values()) > _CACHE_BYTES:
                del self._groups[next(iter(self._groups))]
        return self._groups[group]
