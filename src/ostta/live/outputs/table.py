"""`predictions.csv`, to which rows are appended, and `predictions.parquet`, which is converted from it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ...core.errors import translate_errors
from ...core.text import GUARD, guarded, unguarded
from ...core.types import Error
from ...io import file_in_one_step
from ..journal import Progress, Row

# Types of the columns in the parquet file. An empty cell is a missing value. New columns are added at the end.
COLUMNS = {
    "row": "int64",
    "image": "string",
    "step": "int64",
    "label": "string",
    "known": "bool",
    "score": "float64",
    "threshold": "float64",
    "verdict": "string",
    "best": "string",
    "warming_up": "bool",
    "adapted": "bool",
    "reason": "string",
    "error": "string",
    "time": "float64",
    "frame": "int64",
    "ms": "float64",
    "events": "string",
    "probability": "float64",
    "undecided": "bool",
    "explanation": "string",
}
# Columns of older files, without probabilities. Such a file keeps its columns when a stream resumes.
FORMER_COLUMNS = tuple(name for name in COLUMNS if name not in ("probability", "undecided", "explanation"))
# Bytes of the CSV file in one group of rows.
GROUP = 1 << 22
LARGEST_CELL = 1 << 20


def header(columns: Iterable[str] = tuple(COLUMNS)) -> bytes:
    """Return the header line."""
    return _line(list(columns))


class Table:
    """The CSV file of an output folder, which always ends with a complete row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns = tuple(COLUMNS)

    def begin(self) -> Progress:
        """Create a new file with the header line."""
        self._write("wb", header())
        return Progress(0, len(header()))

    def is_empty(self) -> bool:
        """Return whether the file is missing or contains at most a part of the header line."""
        return not self.path.exists() or header().startswith(self._start(len(header()) + 1))

    def resume(self, progress: Progress) -> None:
        """Remove rows added after `progress`. Raise an Error if another program changed the file."""
        with translate_errors("output-unreadable", f"{self.path} cannot be resumed ({{reason}}).", OSError):
            size = self.path.stat().st_size
            if self._start(len(header(FORMER_COLUMNS))) == header(FORMER_COLUMNS):
                self._columns = FORMER_COLUMNS
            first = header(self._columns)
            if not size >= progress.bytes >= len(first) or self._start(len(first)) != first:
                raise self._changed()
            with open(self.path, "rb+") as file:
                file.seek(progress.bytes - 1)
                if file.read(1) != b"\n":
                    raise self._changed()
                if size > progress.bytes:
                    file.truncate(progress.bytes)

    def add(self, rows: Iterable[Row], progress: Progress) -> Progress:
        """Append rows."""
        number, size, lines = progress.number, progress.bytes, []
        for row in rows:
            lines.append(_line(cells(row.content, self._columns)))
            number = row.number
        content = b"".join(lines)
        if content:
            self._write("rb+", content, size)
        return Progress(number, size + len(content))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows with their types."""
        limit = csv.field_size_limit(LARGEST_CELL)
        try:
            with self._reading(OSError, ValueError, csv.Error), open(self.path, encoding="utf-8", newline="") as file:
                for cells in csv.DictReader(file):
                    yield _typed(cells)
        finally:
            csv.field_size_limit(limit)

    def write_parquet(self, path: Path) -> None:
        """Write the same rows as parquet, one group of rows at a time."""
        import pyarrow
        from pyarrow import compute, parquet
        from pyarrow import csv as arrow_csv

        kinds = {name: COLUMNS[name] for name in self._columns}
        schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in kinds.items()])
        convert = arrow_csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            true_values=["true"],
            false_values=["false"],
        )
        # File names may contain line breaks.
        parse, read = arrow_csv.ParseOptions(newlines_in_values=True), arrow_csv.ReadOptions(block_size=GROUP)
        with (
            self._reading(pyarrow.ArrowInvalid),
            file_in_one_step(path) as partial,
            arrow_csv.open_csv(self.path, read, parse, convert) as batches,
            parquet.ParquetWriter(partial, schema) as writer,
        ):
            for batch in batches:
                columns = [
                    compute.replace_substring_regex(column, GUARD, r"\1") if kind == "string" else column
                    for column, kind in zip(batch.columns, kinds.values(), strict=True)
                ]
                writer.write_batch(pyarrow.record_batch(columns, schema=schema))

    def _reading(self, *kinds: type[Exception]) -> AbstractContextManager[None]:
        """Return a context manager that translates exceptions about the content of the file."""
        message = f"{self.path} cannot be read as a table of predictions ({{reason}})."
        return translate_errors("output-unreadable", message, *kinds)

    def _changed(self) -> Error:
        return Error(
            f"{self.path} was changed or deleted by another program: restore it, or give another folder.",
            code="output-changed",
        )

    def _start(self, count: int) -> bytes:
        with open(self.path, "rb") as file:
            return file.read(count)

    def _write(self, mode: str, content: bytes, size: int = 0) -> None:
        try:
            with open(self.path, mode) as file:
                if file.seek(0, os.SEEK_END) < size:
                    raise self._changed()
                # Remove the rows of a failed attempt.
                file.truncate(size)
                file.seek(size)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except FileNotFoundError:
            raise self._changed() from None
        except OSError as problem:
            raise Error(f"{self.path} could not be written ({problem.strerror}).", code="file-not-written") from None


def cells(content: Mapping[str, Any], columns: Iterable[str] = tuple(COLUMNS)) -> list[str]:
    """Return the content of a row as cells."""
    return [_cell(name, content.get(name)) for name in columns]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "ms":
        return f"{sum(value.values()):.3f}"
    if name == "events":
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, str):
        return guarded(value)
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _typed(cells: Mapping[str, str | None]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        text = cells.get(name) or ""
        if text:
            match kind:
                case "int64":
                    row[name] = int(text)
                case "float64":
                    row[name] = float(text)
                case "bool":
                    row[name] = text == "true"
                case _:
                    row[name] = json.loads(text) if name == "events" else unguarded(text)
    if "row" not in row:
        raise ValueError("a row has no number")
    return row


def _line(values: list[str]) -> bytes:
    buffer = io.StringIO()
    # Some versions of Python do not quote a lone carriage return.
    has_return = any("\r" in value for value in values)
    csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL).writerow(values)
    return buffer.getvalue().encode()
