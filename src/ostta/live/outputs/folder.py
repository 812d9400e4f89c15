"""`--out FOLDER`: the output of a stream, consistent with its state after any crash."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

from PIL import Image

from ...core.types import Error
from ...data.images import read_image
from ...io import make_folder, write_atomically
from ...sources.files import PICTURES, RECORD
from ..digest import Digest
from ..journal import Examples, Journal, Progress, Row
from ..memory import Memory
from .pictures import REJECTED, UNDECIDED_EXAMPLES, DrawnPictures, ExamplePictures, Sort, SortedFiles
from .record import MOST_DRAWN, PictureRecord, foreign
from .table import Table

# Interval between updates of the page, in seconds.
PAGE_EVERY = 60.0


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of an output folder. `page` returns the content of `report.html`.

    replace: the results are complete, and those of an earlier run with `replace` are replaced.
    """

    path: Path
    page: Callable[[Digest, ExamplePictures, Mapping[str, Any], Memory], str]
    sort: Sort | None = None
    draw: bool = False
    replace: bool = False

    def contains_picture(self, path: str) -> bool:
        """Return whether a path is in one of the folders to which pictures are written."""
        # The file itself is not resolved, because a sorted picture may be a link.
        folder = Path(os.path.realpath(os.path.dirname(path)))
        return any(folder.is_relative_to(os.path.realpath(self.path / name)) for name in PICTURES)


def check_unused(options: OutputOptions, record: PictureRecord | None = None) -> None:
    """Raise an Error if a file of somebody else is where a new stream would write."""
    own = (record or PictureRecord(options.path)).own_files() if options.replace else set()
    table = options.path / "predictions.csv"
    if table not in own and not Table(table).is_empty():
        raise Error(
            f"{options.path} has the predictions of another stream: give another folder, or the --state of that "
            "stream.",
            code="output-mismatch",
        )
    written = [options.path / name for name in (RECORD, "predictions.parquet", "report.html")]
    # With a record, sources leave out both folders.
    folders = [options.path / name for name in PICTURES if options.sort or options.draw]
    files = (path for folder in folders for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in chain(written, files):
        if path not in own and os.path.lexists(path):
            raise foreign(path)


class OutputFolder:
    """The files of one folder.

    predictions.csv       settled rows, appended when the state is saved
    predictions.parquet   the same rows, written at the end
    report.html           a page about the stream, updated about every minute and at the end
    sorted/ drawn/        pictures by row number, written immediately; pictures of lost rows are removed at the start
    pictures.jsonl        row, path and size of these pictures, and with `replace` of the three files above; no other
                          file is removed or overwritten
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
        self.path, self._page, self._options = options.path, options.page, options
        if find_spec("pyarrow") is None:
            raise Error(
                '`--out` writes a parquet file, which needs pyarrow: install it with `pip install "ostta[stream]"`.',
                code="library-missing",
            )
        self.name = _name(options.path, journal)
        self.digest = Digest(accept=accept)
        self._about, self._journal, self._memory = about, journal, memory
        self._table = Table(options.path / "predictions.csv")
        known = journal.progress(self.name)
        record = PictureRecord(options.path, min(known.number, journal.last - MOST_DRAWN) if known else 0)
        folders = [options.path / name for name in PICTURES]
        self._sorted = SortedFiles(folders[0], classes, options.sort, record) if options.sort else None
        self._drawn = DrawnPictures(folders[1], record) if options.draw else None
        self._check(known, record)
        self._record = record if options.replace else None
        if self._record is not None:
            self._record.restart()
        self._progress = self._opened(known)
        record.forget(journal.last)
        counts = {REJECTED: self.digest.rejected, UNDECIDED_EXAMPLES: self.digest.undecided, **self.digest.classes}
        self._examples = ExamplePictures(journal.examples(), counts if self.digest.seen else {})
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
        if self._record is not None:
            self._record.add_results(finished=True)

    def write_page(self) -> None:
        """Write the current page."""
        text = self._page(self.digest, self._examples, self._about, self._memory())
        write_atomically(self.path / "report.html", text.encode())

    def _check(self, known: Progress | None, record: PictureRecord) -> None:
        """Raise an Error if the journal is damaged or a file of somebody else is in the way, before any change."""
        for _ in self._journal.rows(after=0 if known is None else known.number):
            pass
        if known is not None:
            record.check(self._journal.last)
            return
        check_unused(self._options, record)

    def _opened(self, known: Progress | None) -> Progress:
        make_folder(self.path)
        if known is None or not self._table.path.exists():
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
