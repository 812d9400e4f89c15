"""What was judged, in a SQLite file beside the state, so that a restart goes on with the next image.

State and journal agree after any crash. Rows wait in memory until the state is to be saved; then

    1. the rows are written, with the number of steps that the state is going to have        (`write`)
    2. the state file is replaced in one step                                                 (the keeper)
    3. the files in the output folder get the rows                                            (the keeper)
    4. it is written that all this is done, with the hash of the new state                    (`settle`)

A crash before 2 leaves rows of which the state knows nothing. The next start drops them and their images are judged again, to the
same answers, for an answer is a function of the state, the image and the number of steps. A crash after 2 is known by the number
of steps from 1. The state never knows of an image that has no row.
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
from ..core.types import Error
from ..io import parse_json

# What says that a SQLite file is a journal ("osta"), and the version of its tables.
APPLICATION, FORMAT = 0x6F737461, 1
MAGIC = b"SQLite format 3\0"
TABLES = (
    # One line: where the state stands, and which state is about to be; the last row that counts.
    "CREATE TABLE state (saved INTEGER NOT NULL, hash TEXT NOT NULL, coming INTEGER, last INTEGER NOT NULL)",
    # `step` is the number of steps after the image; an image that could not be read adds none.
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, step INTEGER NOT NULL, key BLOB NOT NULL, path BLOB, content TEXT NOT NULL)",
    "CREATE INDEX rows_by_key ON rows (key, number) WHERE length(key) > 0",
    # How far the table in an output folder has come.
    "CREATE TABLE folders (name BLOB PRIMARY KEY, number INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    "CREATE TABLE examples (answer TEXT NOT NULL, place INTEGER NOT NULL, number INTEGER NOT NULL, title TEXT NOT NULL, "
    "picture BLOB NOT NULL, PRIMARY KEY (answer, place))",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One judged image: its number, the steps after it, what it is known by at a restart, its file, and its JSON line."""

    number: int
    step: int
    key: str
    path: Path | None
    content: dict[str, Any]


# More images than any stream has.
LARGEST = 2**53


class Example(NamedTuple):
    """A small picture of an image: the number of its row, what is to be said of it, and a JPEG."""

    number: int
    title: str
    picture: bytes


# By answer and place; the answer "I don't know" is empty.
Examples = dict[tuple[str, int], Example]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the table in an output folder has come: the last row in it, and its size in bytes."""

    number: int = 0
    bytes: int = 0


class JournalInUseError(Error):
    """Another program has locked the journal."""


class Journal:
    """An open journal, which no other program can open meanwhile.

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
        # Keys of images that were read and are about to be judged.
        self.expected: set[str] = set()
        # The last row that was written, and the last of those that were settled.
        self._last = self._settled = 0
        # What the file was when it was opened, to notice that it was deleted or replaced.
        self._file: os.stat_result | None = None

    @staticmethod
    def beside(state: Path) -> Path:
        """Where the journal of a state file is.

        >>> Journal.beside(Path("cats.ostta")).name
        'cats.ostta.journal'
        """
        return state.with_name(f"{state.name}.journal")

    @classmethod
    def temporary(cls) -> Journal:
        """One in memory, for a stream without a state: nothing of it stays."""
        journal = cls(None, _connected(":memory:"))
        journal._begin(0, "")
        return journal

    @classmethod
    def opened(cls, path: Path) -> Journal:
        """Lock the journal in a file, which is created if it does not exist; `go_on` writes the tables of a new one.

        Raises an Error if the file is not a journal, is damaged, or is in use by another program.
        """
        if os.path.lexists(path) and not path.is_file():
            raise Error(f"{path} is not an ordinary file.", code="file-not-regular")
        created = not path.exists()
        try:
            with open(path, "a+b") as file:
                file.seek(0)
                start = file.read(20)
                before = os.fstat(file.fileno())
        except OSError as problem:
            raise Error(f"{path} cannot be opened ({problem.strerror}).", code="journal-failed") from None
        # A file in SQLite's other mode is not from here, and opening it would leave files beside it.
        if start and not (start.startswith(MAGIC) and start[18:] == b"\x01\x01"):
            raise _strange(path)
        try:
            with _said(path):
                journal = cls(path, _connected(os.fspath(path)))
        except JournalInUseError:
            raise
        except BaseException:
            # Nobody can lock this file, so nobody else uses it.
            if created:
                with suppress(OSError):
                    path.unlink()
            raise
        try:
            journal._file = before
            if journal._is_gone():
                raise _in_use(path)
            with _said(path):
                journal._check()
        except BaseException:
            journal.close()
            raise
        return journal

    def go_on(self, state: Path, steps: int, state_hash: str) -> None:
        """Go on with a state that has so many steps and this hash; rows that it knows nothing of are dropped."""
        with _said(self.path):
            if self.is_empty():
                self._begin(steps, state_hash)
            saved, known, coming, last = self._state()
            if (steps, state_hash) != (saved, known) and steps != coming:
                raise Error(
                    f"{self.path} belongs to another state than {state}, which has {steps} steps where the journal knows of {saved}: "
                    "bring the two back that belong together, or remove the journal to judge all images anew from this state on.",
                    code="journal-mismatch",
                )
            # Written with the first rows: until then, whoever finds something else wrong has changed nothing.
            self._connection.execute("DELETE FROM rows WHERE step > ?", (steps,))
            found = self._connection.execute("SELECT max(number) FROM rows").fetchone()[0]
            self._last, self._settled = max(last, found or 0), last
            if self._last > LARGEST:
                raise _damaged(self.path)
            self._connection.execute(
                "UPDATE state SET saved = ?, hash = ?, coming = NULL, last = ?", (steps, state_hash, self._last)
            )

    @property
    def waiting(self) -> int:
        """How many rows are not written yet."""
        return len(self._waiting)

    @property
    def last(self) -> int:
        """The number of the last row."""
        return self._last + len(self._waiting)

    @property
    def skipped(self) -> int:
        """How many images were found to be known since the start."""
        with _said(self.path):
            found: int = self._connection.execute("SELECT count(*) FROM temp.skipped").fetchone()[0]
        return found

    def knows(self, key: str) -> bool:
        """Whether the image of this key was judged; each counts once for a state, also where a list names it twice."""
        if not key or self.path is None:
            return False
        with _said(self.path):
            text = _bytes(key)
            if key not in self._keys and key not in self.expected:
                asked = "SELECT 1 FROM rows WHERE key = ? AND length(key) > 0 LIMIT 1"
                if self._connection.execute(asked, (text,)).fetchone() is None:
                    return False
            self._connection.execute("INSERT OR IGNORE INTO temp.skipped VALUES (?)", (text,))
            return True

    def add(self, step: int, key: str, path: Path | None, content: dict[str, Any]) -> Row:
        """A new row, which has the next number."""
        number = self.last + 1
        row = Row(number, step, "" if self.path is None else key, path, {"row": number, **content})
        self._waiting.append(row)
        self._keys.add(row.key)
        self.expected.discard(row.key)
        return row

    def write(self, steps: int) -> None:
        """Write the rows that wait, before a state with so many steps is saved."""
        # SQLite would go on writing to the deleted file, and the next start would process all images again.
        if self._is_gone():
            raise Error(
                f"{self.path} was deleted or replaced while the stream was running, and what came since the last save is not saved: "
                "bring it back, or remove the state too to begin anew.",
                code="journal-changed",
            )
        rows = [
            (
                row.number,
                row.step,
                _bytes(row.key),
                None if row.path is None else os.fsencode(row.path),
                _text(row.content),
            )
            for row in self._waiting
        ]
        with _said(self.path), self._connection:
            self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", rows)
            self._connection.execute("UPDATE state SET coming = ?", (steps,))
        self._last += len(rows)
        self._waiting.clear()
        self._keys.clear()

    def rows(self, after: int) -> Iterator[Row]:
        """The rows that were written, from the one behind number `after` on."""
        with _said(self.path):
            found = self._connection.execute(
                "SELECT number, step, key, path, content FROM rows WHERE number > ? ORDER BY number", (after,)
            )
            for number, step, key, path, content in found:
                yield _row(self.path, number, step, key, path, content)

    def settle(self, steps: int, state_hash: str, folder: str | None, progress: Progress, examples: Examples) -> None:
        """All is saved: a state with so many steps and this hash, and the table of `folder` as far as `progress` says.

        Rows without a key can never be asked for again and are dropped, so that the journal of a camera does not grow.
        """
        with _said(self.path), self._connection:
            self._connection.execute(
                "UPDATE state SET saved = ?, hash = ?, coming = NULL, last = ?", (steps, state_hash, self._last)
            )
            if folder is not None:
                self._note(folder, progress)
            lines = [(answer, place, *example) for (answer, place), example in examples.items()]
            self._connection.executemany("INSERT OR REPLACE INTO examples VALUES (?, ?, ?, ?, ?)", lines)
            self._connection.execute("DELETE FROM rows WHERE number > ? AND length(key) = 0", (self._settled,))
        self._settled = self._last

    def note(self, folder: str, progress: Progress) -> None:
        """How far the table of an output folder has come, before the first image."""
        with _said(self.path), self._connection:
            self._note(folder, progress)

    def _note(self, folder: str, progress: Progress) -> None:
        line = (_bytes(folder), progress.number, progress.bytes)
        self._connection.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", line)

    def progress(self, folder: str) -> Progress | None:
        """How far the table of an output folder has come; None where it was never written to."""
        with _said(self.path):
            found = self._connection.execute(
                "SELECT number, bytes FROM folders WHERE name = ?", (_bytes(folder),)
            ).fetchone()
        if found is None:
            return None
        if not all(type(value) is int and 0 <= value <= LARGEST for value in found):
            raise _damaged(self.path)
        return Progress(*found)

    def examples(self) -> Examples:
        """The example pictures that were kept."""
        with _said(self.path):
            found = self._connection.execute("SELECT answer, place, number, title, picture FROM examples").fetchall()
        if not all(tuple(map(type, line)) == (str, int, int, str, bytes) for line in found):
            raise _damaged(self.path)
        return {(answer, place): Example(*example) for answer, place, *example in found}

    def close(self) -> None:
        """Let other programs have it; what waits is not written."""
        self._connection.close()

    def remove(self) -> None:
        """Delete the file while it is still locked, so that a journal of another program is never deleted."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _is_gone(self) -> bool:
        """Whether another program deleted or replaced the file since it was opened."""
        if self.path is None or self._file is None:
            return False
        try:
            return not os.path.samestat(self._file, os.stat(self.path))
        except OSError:
            return True

    def _begin(self, steps: int, state_hash: str) -> None:
        with self._connection:
            # All or nothing: by itself, Python begins no transaction for a table.
            self._connection.execute("BEGIN")
            for table in TABLES:
                self._connection.execute(table)
            self._connection.execute("INSERT INTO state VALUES (?, ?, NULL, 0)", (steps, state_hash))
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def is_empty(self) -> bool:
        """Whether somebody was killed before anything was in it."""
        tables: int = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application: int = self._connection.execute("PRAGMA application_id").fetchone()[0]
        return tables == application == 0

    def _check(self) -> None:
        """That it is a journal, whole, and nothing else; or empty."""
        if self.is_empty():
            return
        application, version = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise _strange(self.path)
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
        lines = self._connection.execute("SELECT saved, hash, coming, last FROM state").fetchall()
        if len(lines) != 1:
            raise _damaged(self.path)
        saved, known, coming, last = lines[0]
        counts = (saved, last, 0 if coming is None else coming)
        if type(known) is not str or not all(type(count) is int and count >= 0 for count in counts):
            raise _damaged(self.path)
        return saved, known, coming, last


def _connected(name: str) -> sqlite3.Connection:
    # No waiting for another program: it has the journal as long as its stream lasts. Transactions are begun by hand or by `with`.
    connection = sqlite3.connect(name, timeout=0)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        # The lock is taken now, and kept to the end. A commit would mend the header of a damaged file.
        connection.execute("BEGIN EXCLUSIVE")
        connection.rollback()
        connection.execute("CREATE TEMP TABLE skipped (key BLOB PRIMARY KEY)")
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _said(path: Path | None) -> Iterator[None]:
    """What SQLite says, in a sentence."""
    try:
        yield
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise _in_use(path) from None
        if code in (sqlite3.SQLITE_NOTADB,):
            raise _strange(path) from None
        if code in (sqlite3.SQLITE_CORRUPT,):
            raise _damaged(path) from None
        raise Error(
            f"{path} could not be read or written ({shown(str(problem), 200)}); it is as it was before.",
            code="journal-failed",
        ) from None


def _in_use(path: Path | None) -> JournalInUseError:
    return JournalInUseError(f"{path} is in use by another program: wait for it, or give another state file.")


def _strange(path: Path | None) -> Error:
    return Error(f"{path} is not a journal of ostta: move it away, or give another state file.", code="journal-invalid")


def _damaged(path: Path | None) -> Error:
    return Error(
        f"{path} is damaged: use a copy of it and of the state from the same time, or remove it to judge all images anew.",
        code="journal-damaged",
    )


def _row(journal: Path | None, number: Any, step: Any, key: Any, path: Any, content: Any) -> Row:
    try:
        if not (type(step) is int and type(key) is bytes and type(content) is str and isinstance(path, bytes | None)):
            raise ValueError("a value of another type")
        line = parse_json(content)
        if not isinstance(line, dict) or not isinstance(line.get("image"), str):
            raise ValueError("no line about an image")
    except ValueError:
        raise _damaged(journal) from None
    return Row(number, step, os.fsdecode(key), None if path is None else Path(os.fsdecode(path)), line)


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


def _bytes(key: str) -> bytes:
    # A file name need not be Unicode.
    return key.encode("utf-8", "surrogateescape")
