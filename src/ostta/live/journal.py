"""A journal of processed images in a SQLite file next to the state file, so that a restart resumes after them.

The state and the journal are consistent after any crash. Rows are buffered in memory until the state is saved:

    1. the rows are written, with the number of steps that the new state will have           (`write`)
    2. the state file is replaced atomically                                                 (the keeper)
    3. the rows are written to the files in the output folder                                (the keeper)
    4. the save is marked as complete, with the hash of the new state                        (`settle`)

A crash before 2 leaves rows that are not part of the state. The next start deletes them and processes their images
again, with the same answers, because an answer is a function of the state, the image and the number of steps. A crash
after 2 is recognised by the number of steps from 1. Every image that the state has learned from has a row.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..core.checks import shown
from ..core.errors import translate_errors
from ..core.types import Error
from ..io import parse_json

# SQLite application id of journals ("osta"), and version of the tables.
APPLICATION, FORMAT = 0x6F737461, 1
MAGIC = b"SQLite format 3\0"
# Upper bound on row numbers; no stream has this many images.
LARGEST = 2**53
TABLES = (
    # One row: steps and hash of the saved state, steps of the state that is being saved, the last row that counts.
    "CREATE TABLE state (saved INTEGER NOT NULL, hash TEXT NOT NULL, coming INTEGER, last INTEGER NOT NULL)",
    # `step` is the number of steps after the image; an image that could not be read adds none.
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, step INTEGER NOT NULL, key BLOB NOT NULL, path BLOB, content "
    "TEXT NOT NULL)",
    "CREATE INDEX rows_by_key ON rows (key, number) WHERE length(key) > 0",
    # Progress of the tables in output folders.
    "CREATE TABLE folders (name BLOB PRIMARY KEY, number INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    "CREATE TABLE examples (answer TEXT NOT NULL, place INTEGER NOT NULL, number INTEGER NOT NULL, title TEXT NOT "
    "NULL, picture BLOB NOT NULL, PRIMARY KEY (answer, place))",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One image: row number, number of steps after it, key that is stable across restarts, file, and JSON content."""

    number: int
    step: int
    key: str
    path: Path | None
    content: dict[str, Any]


class Example(NamedTuple):
    """A thumbnail of an image: row number, title, and JPEG content."""

    number: int
    title: str
    picture: bytes


# Examples by answer and position. The answer "unknown" is an empty string.
Examples = dict[tuple[str, int], Example]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the table in an output folder: its last row, and its size in bytes."""

    number: int = 0
    bytes: int = 0


class JournalInUseError(Error):
    """Raised if another program has locked the journal."""

    code = "file-in-use"


class Journal:
    """An open journal, locked against other programs.

    >>> journal = Journal.temporary()
    >>> journal.add(1, "cat.jpg", None, {"image": "cat.jpg", "label": "cat"}).number
    1
    >>> journal.write(steps=1)
    >>> [row.content["label"] for row in journal.rows(after=0)]
    ['cat']
    """

    def __init__(self, path: Path | None, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._waiting: list[Row] = []
        self._keys: set[str] = set()
        # Keys of images that were read but not yet processed.
        self.expected: set[str] = set()
        # Numbers of the last written and the last settled row.
        self._last = self._settled = 0
        # Status of the file when it was opened, to detect that it was deleted or replaced.
        self._file: os.stat_result | None = None

    @staticmethod
    def beside(state: Path) -> Path:
        """Return the path of the journal of a state file.

        >>> Journal.beside(Path("cats.ostta")).name
        'cats.ostta.journal'
        """
        return state.with_name(f"{state.name}.journal")

    @classmethod
    def temporary(cls) -> Journal:
        """Return an in-memory journal for a stream without a state file."""
        journal = cls(None, _connected(":memory:"))
        journal._begin(0, "")
        return journal

    @classmethod
    def opened(cls, path: Path) -> Journal:
        """Open and lock the journal in a file, which is created if it does not exist. `resume` creates its tables.

        Raise an Error if the file is not a journal, is damaged, or is in use by another program.
        """
        if os.path.lexists(path) and not path.is_file():
            raise Error(f"{path} is not an ordinary file.", code="file-not-regular")
        created = not path.exists()
        failure = translate_errors("journal-failed", f"{path} cannot be opened ({{reason}}).", OSError)
        with failure, open(path, "a+b") as file:
            file.seek(0)
            start = file.read(20)
            before = os.fstat(file.fileno())
        # A SQLite file in WAL mode is not a journal, and opening it would create additional files.
        if start and not (start.startswith(MAGIC) and start[18:] == b"\x01\x01"):
            raise _not_a_journal(path)
        try:
            with _translated(path):
                journal = cls(path, _connected(os.fspath(path)))
        except JournalInUseError:
            raise
        except BaseException:
            # The file cannot be locked, so no other program uses it.
            if created:
                with suppress(OSError):
                    path.unlink()
            raise
        try:
            journal._file = before
            if journal._is_gone():
                raise _in_use(path)
            with _translated(path):
                journal._check()
        except BaseException:
            journal.close()
            raise
        return journal

    def resume(self, state: Path, steps: int, state_hash: str) -> None:
        """Resume from the state with this number of steps and this hash. Rows that are not part of it are deleted."""
        with _translated(self.path):
            if self.is_empty():
                self._begin(steps, state_hash)
            saved, known, coming, last = self._state()
            if (steps, state_hash) != (saved, known) and steps != coming:
                raise Error(
                    f"{self.path} belongs to another state than {state}, which has {steps} steps instead of "
                    f"{saved}: restore two files that belong together, or delete the journal to process all images "
                    "again from this state.",
                    code="journal-mismatch",
                )
            # Committed together with the first rows, so an earlier error does not change the file.
            self._connection.execute("DELETE FROM rows WHERE step > ?", (steps,))
            largest = self._connection.execute("SELECT max(number) FROM rows").fetchone()[0]
            self._last, self._settled = max(last, largest or 0), last
            if self._last > LARGEST:
                raise _damaged(self.path)
            self._connection.execute(
                "UPDATE state SET saved = ?, hash = ?, coming = NULL, last = ?", (steps, state_hash, self._last)
            )

    @property
    def waiting(self) -> int:
        """Number of rows that are not written yet."""
        return len(self._waiting)

    @property
    def last(self) -> int:
        """Number of the last row."""
        return self._last + len(self._waiting)

    @property
    def skipped(self) -> int:
        """Number of images since the start that were already in the journal."""
        with _translated(self.path):
            count: int = self._connection.execute("SELECT count(*) FROM temp.skipped").fetchone()[0]
        return count

    def knows(self, key: str) -> bool:
        """Return whether the image with this key was processed. An image that is listed twice is processed once."""
        if not key or self.path is None:
            return False
        with _translated(self.path):
            text = _bytes(key)
            if key not in self._keys and key not in self.expected:
                query = "SELECT 1 FROM rows WHERE key = ? AND length(key) > 0 LIMIT 1"
                if self._connection.execute(query, (text,)).fetchone() is None:
                    return False
            self._connection.execute("INSERT OR IGNORE INTO temp.skipped VALUES (?)", (text,))
            return True

    def add(self, step: int, key: str, path: Path | None, content: dict[str, Any]) -> Row:
        """Add a row with the next number."""
        number = self.last + 1
        row = Row(number, step, "" if self.path is None else key, path, {"row": number, **content})
        self._waiting.append(row)
        self._keys.add(row.key)
        self.expected.discard(row.key)
        return row

    def write(self, steps: int) -> None:
        """Write the buffered rows before a state with this number of steps is saved."""
        # SQLite would continue to write to the deleted file, and the next start would process all images again.
        if self._is_gone():
            raise Error(
                f"{self.path} was deleted or replaced while the stream was running, so the images since the last save "
                "are not saved: restore the file, or delete the state file too to start again.",
                code="journal-changed",
            )
        rows = [
            (
                row.number,
                row.step,
                _bytes(row.key),
                None if row.path is None else os.fsencode(row.path),
                json.dumps(row.content, ensure_ascii=False),
            )
            for row in self._waiting
        ]
        with _translated(self.path), self._connection:
            self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", rows)
            self._connection.execute("UPDATE state SET coming = ?", (steps,))
        self._last += len(rows)
        self._waiting.clear()
        self._keys.clear()

    def rows(self, after: int) -> Iterator[Row]:
        """Yield the written rows after number `after`."""
        with _translated(self.path):
            rows = self._connection.execute(
                "SELECT number, step, key, path, content FROM rows WHERE number > ? ORDER BY number", (after,)
            )
            for number, step, key, path, content in rows:
                yield _row(self.path, number, step, key, path, content)

    def settle(self, steps: int, state_hash: str, folder: str | None, progress: Progress, examples: Examples) -> None:
        """Record that a save is complete: the steps and hash of the state, and the progress of the table of `folder`.

        Rows without a key are deleted, because they are not used again. The journal of a camera therefore stays small.
        """
        with _translated(self.path), self._connection:
            self._connection.execute(
                "UPDATE state SET saved = ?, hash = ?, coming = NULL, last = ?", (steps, state_hash, self._last)
            )
            if folder is not None:
                self._note(folder, progress)
            rows = [(answer, place, *example) for (answer, place), example in examples.items()]
            self._connection.executemany("INSERT OR REPLACE INTO examples VALUES (?, ?, ?, ?, ?)", rows)
            self._connection.execute("DELETE FROM rows WHERE number > ? AND length(key) = 0", (self._settled,))
        self._settled = self._last

    def note(self, folder: str, progress: Progress) -> None:
        """Record the progress of the table of an output folder before the first image."""
        with _translated(self.path), self._connection:
            self._note(folder, progress)

    def _note(self, folder: str, progress: Progress) -> None:
        row = (_bytes(folder), progress.number, progress.bytes)
        self._connection.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", row)

    def progress(self, folder: str) -> Progress | None:
        """Return the progress of the table of an output folder, or None if it was never written."""
        with _translated(self.path):
            query = "SELECT number, bytes FROM folders WHERE name = ?"
            row = self._connection.execute(query, (_bytes(folder),)).fetchone()
        if row is None:
            return None
        if not all(type(value) is int and 0 <= value <= LARGEST for value in row):
            raise _damaged(self.path)
        return Progress(*row)

    def examples(self) -> Examples:
        """Return the stored example pictures."""
        with _translated(self.path):
            rows = self._connection.execute("SELECT answer, place, number, title, picture FROM examples").fetchall()
        if not all(tuple(map(type, row)) == (str, int, int, str, bytes) for row in rows):
            raise _damaged(self.path)
        return {(answer, place): Example(*example) for answer, place, *example in rows}

    def close(self) -> None:
        """Close the file and release its lock. Buffered rows are not written."""
        self._connection.close()

    def remove(self) -> None:
        """Delete the file while it is still locked, so that a journal of another program is never deleted."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _is_gone(self) -> bool:
        """Return whether the file was deleted or replaced since it was opened."""
        if self.path is None or self._file is None:
            return False
        try:
            return not os.path.samestat(self._file, os.stat(self.path))
        except OSError:
            return True

    def _begin(self, steps: int, state_hash: str) -> None:
        with self._connection:
            # sqlite3 does not begin a transaction for CREATE TABLE implicitly.
            self._connection.execute("BEGIN")
            for table in TABLES:
                self._connection.execute(table)
            self._connection.execute("INSERT INTO state VALUES (?, ?, NULL, 0)", (steps, state_hash))
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def is_empty(self) -> bool:
        """Return whether the journal has no tables, as after a crash during its creation."""
        tables: int = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application: int = self._connection.execute("PRAGMA application_id").fetchone()[0]
        return tables == application == 0

    def _check(self) -> None:
        """Raise an Error unless the file is an intact journal or empty."""
        if self.is_empty():
            return
        application, version = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise _not_a_journal(self.path)
        if version != FORMAT:
            raise Error(
                f"{self.path} has format {version}, and this version reads format {FORMAT}.", code="journal-invalid"
            )
        tables = self._connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        sound = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if sound != "ok" or sorted(sql for (sql,) in tables) != sorted(TABLES):
            raise _damaged(self.path)
        self._state()

    def _state(self) -> tuple[int, str, int | None, int]:
        rows = self._connection.execute("SELECT saved, hash, coming, last FROM state").fetchall()
        if len(rows) != 1:
            raise _damaged(self.path)
        saved, known, coming, last = rows[0]
        counts = (saved, last, 0 if coming is None else coming)
        if type(known) is not str or not all(type(count) is int and count >= 0 for count in counts):
            raise _damaged(self.path)
        return saved, known, coming, last


def _connected(name: str) -> sqlite3.Connection:
    # No timeout, because another program holds the lock until its stream ends.
    connection = sqlite3.connect(name, timeout=0)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        # Locks the file until it is closed. A commit would repair the header of a damaged file.
        connection.execute("BEGIN EXCLUSIVE")
        connection.rollback()
        connection.execute("CREATE TEMP TABLE skipped (key BLOB PRIMARY KEY)")
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _translated(path: Path | None) -> Iterator[None]:
    """Turn exceptions of SQLite into an Error."""
    try:
        yield
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise _in_use(path) from None
        if code == sqlite3.SQLITE_NOTADB:
            raise _not_a_journal(path) from None
        if code == sqlite3.SQLITE_CORRUPT:
            raise _damaged(path) from None
        raise Error(
            f"{path} could not be read or written ({shown(str(problem), 200)}); it was not changed.",
            code="journal-failed",
        ) from None


def _in_use(path: Path | None) -> JournalInUseError:
    return JournalInUseError(f"{path} is in use by another program: wait for its end, or give another state file.")


def _not_a_journal(path: Path | None) -> Error:
    return Error(f"{path} is not a journal of ostta: move it, or give another state file.", code="journal-invalid")


def _damaged(path: Path | None) -> Error:
    return Error(
        f"{path} is damaged: restore it and the state file from the same backup, or delete it to process all images "
        "again.",
        code="journal-damaged",
    )


def _row(journal: Path | None, number: Any, step: Any, key: Any, path: Any, content: Any) -> Row:
    try:
        if not (type(step) is int and type(key) is bytes and type(content) is str and isinstance(path, bytes | None)):
            raise ValueError("a value of another type")
        fields = parse_json(content)
        if not isinstance(fields, dict) or not isinstance(fields.get("image"), str):
            raise ValueError("a row without the name of its image")
    except ValueError:
        raise _damaged(journal) from None
    return Row(number, step, os.fsdecode(key), None if path is None else Path(os.fsdecode(path)), fields)


def _bytes(key: str) -> bytes:
    # File names may contain bytes that are not valid UTF-8.
    return key.encode("utf-8", "surrogateescape")
