"""`--out FOLDER`: the output of a stream, consistent with its state after any crash."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from ...core.types import Error
from ...data.images import read_image
from ...io import make_folder, write_atomically
from ..digest import Digest
from ..journal import Examples, Journal, Progress, Row
from ..memory import Memory
from .pictures import REJECTED, UNDECIDED_EXAMPLES, DrawnPictures, ExamplePictures, Sort, SortedFiles
from .table import Table

# Interval between updates of the page, in seconds.
PAGE_EVERY = 60.0


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of an output folder. `page` returns the content of `report.html`."""

    path: Path
    page: Callable[[Digest, ExamplePictures, Mapping[str, Any], Memory], str]
    sort: Sort | None = None
    draw: bool = False


class OutputFolder:
    """The files of one folder.

    predictions.csv       settled rows, appended when the state is saved
    predictions.parquet   the same rows, written at the end
    report.html           a page about the stream, updated about every minute and at the end
    sorted/ drawn/        pictures by row number, written immediately; pictures of lost rows are removed at the start
    """

    def __init__(
        self,
        options: OutputOptions,
        journal: Journal,
        classes: tuple[str, ...],
        about: Mapping[str, Any],
        memory: Callable[[], Memory],
        accept: float | None = 0.5,
    ) -> None:
        self.path, self._page = options.path, options.page
        if find_spec("pyarrow") is None:
            raise Error(
                '`--out` writes a parquet file, which needs pyarrow: install it with `pip install "ostta[stream]"`.',
                code="library-missing",
            )
        self.name = _name(options.path, journal)
        self.digest = Digest(accept=accept)
        self._about, self._journal, self._memory = about, journal, memory
        self._table = Table(options.path / "predictions.csv")
        self._sorted = SortedFiles(options.path / "sorted", classes, options.sort) if options.sort else None
        self._drawn = DrawnPictures(options.path / "drawn") if options.draw else None
        self._progress = self._opened()
        counts = {REJECTED: self.digest.rejected, UNDECIDED_EXAMPLES: self.digest.undecided, **self.digest.classes}
        self._examples = ExamplePictures(journal.examples(), counts if self.digest.seen else {})
        for part in (self._sorted, self._drawn):
            if part is not None:
                part.forget(journal.last)
        # Rows from before this folder was created.
        for row in journal.rows(after=self._progress.number):
            self.show(row, None)
        self._page_due = time.monotonic() + PAGE_EVERY

    def show(self, row: Row, picture: Image.Image | None) -> None:
        """Write the pictures of a new row. Without `picture`, the file of the row is used if it still exists."""
        if row.content.get("verdict") is None:
            return
        place = self._examples.choose_place(row.content)
        if picture is None and row.path is not None and (place is not None or self._drawn is not None):
            try:
                picture = read_image(row.path)
            except Error:
                picture = None
        if self._sorted is not None:
            self._sorted.add(row, picture)
        if picture is not None and self._drawn is not None:
            self._drawn.add(row, picture)
        if picture is not None and place is not None:
            self._examples.add(row, picture, place)

    @property
    def behind(self) -> bool:
        """Whether the journal has rows that the table does not have."""
        return self._journal.last > self._progress.number

    def write_rows(self) -> Progress:
        """Write the new rows of the journal to the table."""
        for rows in _in_parts(self._journal.rows(after=self._progress.number)):
            self._progress = self._table.add(rows, self._progress)
            for row in rows:
                self.digest.add(row.content)
        if time.monotonic() >= self._page_due:
            self.write_page()
            self._page_due = time.monotonic() + PAGE_EVERY
        return self._progress

    def new_examples(self) -> Examples:
        """Return the example pictures that were selected since the last call."""
        return self._examples.new()

    def finish(self) -> None:
        """Write the page and the parquet file."""
        self.write_page()
        self._table.write_parquet(self.path / "predictions.parquet")

    def write_page(self) -> None:
        """Write the current page."""
        text = self._page(self.digest, self._examples, self._about, self._memory())
        write_atomically(self.path / "report.html", text.encode())

    def _opened(self) -> Progress:
        known = self._journal.progress(self.name)
        for _ in self._journal.rows(after=0 if known is None else known.number):
            pass  # a damaged journal raises an Error before anything is written
        make_folder(self.path)
        if known is None or not self._table.path.exists():
            if not self._table.is_empty():
                raise Error(
                    f"{self.path} has the predictions of another stream: give another folder, or the --state of that "
                    "stream.",
                    code="output-mismatch",
                )
            progress = self._table.begin()
            self._journal.note(self.name, progress)
            return progress
        self._table.resume(known)
        for row in self._table.rows():
            self.digest.add(row)
        return known


def _name(path: Path, journal: Journal) -> str:
    """Return the path of the folder relative to the journal, so that both can be moved together."""
    return os.path.relpath(path, "." if journal.path is None else journal.path.parent)


def _in_parts(rows: Iterator[Row], most: int = 1_000) -> Iterator[list[Row]]:
    """Yield rows in batches, because a new folder may start with a long journal."""
    while part := list(islice(rows, most)):
        yield part
