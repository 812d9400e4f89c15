"""The tables of the store, as numbered migrations.

A migration is never changed after a release. A change of the schema is a new migration at the end of the list.
"""

from __future__ import annotations

from ...core.types import Error
from .databases import Cursor, Database

MIGRATIONS: tuple[str, ...] = (
    # holders: processes that may write. sessions: `fence` grows with every change of the holder. history: chart points and events.
    """
    CREATE TABLE holders (id TEXT PRIMARY KEY, name TEXT NOT NULL, expires {real} NOT NULL, published TEXT NOT NULL);
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, holder TEXT, fence BIGINT NOT NULL, saved {real} NOT NULL, about TEXT NOT NULL
    );
    CREATE TABLE snapshots (
        session TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE, fence BIGINT NOT NULL, state {blob} NOT NULL
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


def migrate(database: Database) -> None:
    """Bring the tables of a database up to date."""

    def work(cursor: Cursor) -> None:
        cursor.execute("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)")
        if database.blob == "BYTEA":
            # Two servers that start at the same time apply each migration once.
            cursor.execute("LOCK TABLE migrations IN EXCLUSIVE MODE")
        ((found,),) = cursor.execute("SELECT coalesce(max(number), 0) FROM migrations")
        if found > len(MIGRATIONS):
            raise Error(
                f"The store has schema {found}, and this version of ostta knows schemas up to {len(MIGRATIONS)}: "
                "use the version that wrote it, or choose another store.",
                code="store-too-new",
            )
        for number, text in enumerate(MIGRATIONS[found:], found + 1):
            for statement in text.format(blob=database.blob, real=database.real).split(";"):
                cursor.execute(statement)
            cursor.execute("INSERT INTO migrations (number) VALUES (?)", (number,))

    database.run(work)
