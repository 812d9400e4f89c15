"""The databases that sessions are stored in: SQLite, and PostgreSQL for servers on several machines.

Statements are written once, with `?` for values. Both databases know `ON CONFLICT` and `RETURNING`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...core.errors import import_extra, reason_of
from ...core.types import Error
from ...io import make_folder

T = TypeVar("T")
Row = tuple[Any, ...]
FILE = "sessions.sqlite"
# Seconds to wait for another process that uses the same database: while it is opened, and afterwards (SQLite only).
OPENING_SECONDS, BUSY_SECONDS = 1.0, 10.0
# Seconds to wait for a connection to PostgreSQL.
CONNECT_SECONDS = 5
# The tables, as numbered migrations. A released migration never changes; a change of the schema is a new one at the
# end.
MIGRATIONS: tuple[str, ...] = (
    # holders: processes that may write. sessions: `fence` grows with every change of the holder. history: chart points
    # and events.
    """
    CREATE TABLE holders (id TEXT PRIMARY KEY, name TEXT NOT NULL, expires {real} NOT NULL, published TEXT NOT NULL);
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, holder TEXT, fence BIGINT NOT NULL, saved {real} NOT NULL, about TEXT NOT NULL
    );
    CREATE TABLE snapshots (
        session TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE, fence BIGINT NOT NULL,
        state {blob} NOT NULL
    );
    CREATE TABLE history (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, number BIGINT NOT NULL, kind TEXT NOT NULL,
        time {real} NOT NULL, content TEXT NOT NULL, PRIMARY KEY (session, number)
    );
    CREATE TABLE answers (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, digest TEXT NOT NULL, place BIGINT NOT NULL,
        content TEXT NOT NULL, PRIMARY KEY (session, digest)
    )
    """,
)
# Advisory lock of PostgreSQL: exclusive for a server that owns all sessions, shared for replicas.
LOCK = 0x6F73747461


class Cursor(Protocol):
    """A connection inside a transaction."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    def execute_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for each sequence of values."""


class Database(Protocol):
    """One connection, used by one thread at a time."""

    # What the schema calls the types of bytes and of times in seconds, and the present time by the clock of the
    # database.
    blob: str
    real: str
    now: str

    def run(self, work: Callable[[Cursor], T]) -> T:
        """Run `work` in a transaction. It may run again if the connection is lost."""

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Read rows; this works on a disk that cannot be written, too."""

    def close(self) -> None:
        """Close the connection and release its locks."""


def open_database(place: str | Path, exclusive: bool) -> Database:
    """Open a database: a `postgresql://` address, or the folder of a SQLite file.

    `exclusive` refuses a database that another server uses, and keeps other servers out until the process ends.
    """
    if isinstance(place, Path):
        return Sqlite(place / FILE, exclusive)
    if not place.startswith(("postgresql://", "postgres://")):
        raise Error(
            f"The store {place!r} is not supported: give an address such as postgresql://user@host/database, "
            "or use --state-dir for SQLite.",
            code="store-invalid",
        )
    return Postgres(place, exclusive)


class Sqlite:
    """A SQLite file with a write-ahead log. A commit is durable when it returns.

    >>> database = Sqlite(Path("sessions.sqlite"), exclusive=True)
    >>> database.run(lambda cursor: cursor.execute("SELECT 1 + ?", (1,)))
    [(2,)]
    >>> Sqlite(Path("sessions.sqlite"), exclusive=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ostta.core.types.Error: The store sessions.sqlite is in use by another server: stop that server, ...
    >>> database.close()
    """

    blob, real, now = "BLOB", "REAL", "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: Path, exclusive: bool) -> None:
        make_folder(path.parent)
        self._path, self._lock = path, threading.Lock()
        with self._translated():
            self.connection = sqlite3.connect(
                path, timeout=OPENING_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translated():
                if exclusive:
                    # The operating system releases this lock when the process ends, however it ends.
                    self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                self.connection.execute("PRAGMA journal_mode = WAL")
                self.connection.execute("PRAGMA synchronous = FULL")
                self.connection.execute("PRAGMA foreign_keys = ON")
                if exclusive:
                    self.connection.execute("BEGIN EXCLUSIVE")
                    self.connection.execute("COMMIT")
                self.connection.execute("SELECT count(*) FROM sqlite_master")
                self.connection.execute(f"PRAGMA busy_timeout = {int(1e3 * BUSY_SECONDS)}")
        except Error:
            self.connection.close()
            raise

    def run(self, work: Callable[[Cursor], T]) -> T:
        with self._lock, self._translated():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(self)
                self.connection.execute("COMMIT")
            except BaseException:
                # SQLite ends a transaction by itself where the disk is full.
                with suppress(sqlite3.Error):
                    self.connection.execute("ROLLBACK")
                raise
            return result

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock, self._translated():
            return self.execute(statement, values)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.connection.execute(statement, values).fetchall()

    def execute_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        self.connection.executemany(statement, values)

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self.connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                raise Error(
                    f"The store {self._path} is in use by another server: stop that server, or choose another "
                    "--state-dir.",
                    code="store-in-use",
                ) from None
            raise Error(f"The store {self._path} cannot be used ({reason_of(problem)}).", code="store-failed") from None


class Postgres:
    """A PostgreSQL database. A connection that was lost is made again at the next transaction."""

    # The start of the statement: one that waited for the write of another process decides as if it had not waited.
    blob, real, now = "BYTEA", "DOUBLE PRECISION", "extract(epoch FROM statement_timestamp())::double precision"

    def __init__(self, address: str, exclusive: bool) -> None:
        self._library = import_extra("psycopg", "A PostgreSQL store", "postgres")
        self._address, self._exclusive, self._lock = address, exclusive, threading.Lock()
        self._connection: Any = None
        with self._lock, self._translated():
            self._connect()

    def run(self, work: Callable[[Cursor], T]) -> T:
        with self._lock, self._translated():
            if self._connection is not None and not self._connection.closed:
                try:
                    return self._transaction(work)
                except self._library.OperationalError:
                    if not self._connection.broken:
                        raise
            self._connect()
            return self._transaction(work)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.run(lambda cursor: cursor.execute(statement, values))

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connection.execute(statement.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def execute_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), values)

    def close(self) -> None:
        with self._lock:
            # PostgreSQL notices the end of a connection some time after it was closed; the next server must not wait.
            with suppress(self._library.Error):
                self.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()

    def _transaction(self, work: Callable[[Cursor], T]) -> T:
        with self._connection.transaction():
            return work(self)

    def _connect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._library.connect(self._address, autocommit=True, connect_timeout=CONNECT_SECONDS)
        # PostgreSQL releases this lock when the connection ends, soon after a process was killed.
        kind = "" if self._exclusive else "_shared"
        try:
            with self._connection.transaction():
                self.execute(f"SET LOCAL lock_timeout = '{OPENING_SECONDS}s'")
                self.execute(f"SELECT pg_advisory_lock{kind}(?)", (LOCK,))
        except self._library.errors.LockNotAvailable:
            self._connection.close()
            raise Error(
                "The PostgreSQL store is in use by another server: stop that server, choose another database, or "
                "start all servers with --engine ray.",
                code="store-in-use",
            ) from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._library.Error as problem:
            raise Error(f"The PostgreSQL store cannot be used ({reason_of(problem)}).", code="store-failed") from None


def migrate(database: Database) -> None:
    """Bring the tables of a database up to date."""

    def work(cursor: Cursor) -> None:
        cursor.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)")
        if database.blob == "BYTEA":
            # Two servers that start at the same time apply each migration once.
            cursor.execute("LOCK TABLE migrations IN EXCLUSIVE MODE")
        ((schema,),) = cursor.execute("SELECT coalesce(max(number), 0) FROM migrations")
        if schema > len(MIGRATIONS):
            raise Error(
                f"The store has schema {schema}, and this version of ostta knows schemas up to {len(MIGRATIONS)}: "
                "use the version that wrote it, or choose another store.",
                code="store-too-new",
            )
        for number, text in enumerate(MIGRATIONS[schema:], schema + 1):
            for statement in text.format(blob=database.blob, real=database.real).split(";"):
                cursor.execute(statement)
            cursor.execute("INSERT INTO migrations (number) VALUES (?)", (number,))

    database.run(work)
