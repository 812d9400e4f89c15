"""Journals of streams: damaged files, and valid databases with content that no journal has."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from ostta.live.journal import Example, Journal, Progress

from .engine import OUT, Kind
from .mutate import damaged

STEPS, HASH = 12, "hash"
ODD = (
    None, -1, 0, 3, 2**53 + 1, 2**63 - 1, -(2**63), 1.5, float("inf"), "", "text", "{}", '{"image": 5}', "[" * 5000,
    '{"image": "a", "label": 7}',
    b"", b"\xff\xfe", b"x" * 100_000, "\x00",
)  # fmt: skip
CHANGES = (
    "UPDATE {table} SET {column} = ?", "UPDATE {table} SET {column} = ? WHERE rowid = 1",
    "INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT ? IS NULL",
    "DELETE FROM {table} WHERE {column} IS NOT ?", "ALTER TABLE {table} RENAME COLUMN {column} TO other",
    "DROP TABLE {table}",
    "CREATE TRIGGER trap AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "CREATE VIEW other AS SELECT * FROM {table}",
    "PRAGMA user_version = 2", "PRAGMA application_id = 1", "PRAGMA journal_mode = WAL", "PRAGMA encoding = 'UTF-16'",
)  # fmt: skip
COLUMNS = {
    "state": ("saved", "hash", "coming", "last"),
    "rows": ("number", "step", "key", "path", "content"),
    "folders": ("name", "number", "bytes"),
    "examples": ("answer", "place", "number", "title", "picture"),
}


class Journals(Kind):
    """A journal is resumed, or rejected with one Error and left unchanged."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal"
            journal = Journal.opened(path)
            journal.resume(Path("state"), 0, HASH)
            for step in range(1, STEPS + 1):
                journal.add(
                    step, f"key{step}", Path(f"{step}.png"), {"image": f"{step}.png", "label": "cat", "known": True}
                )
            journal.write(STEPS)
            example = {("cat", 0): Example(1, "1.png", b"picture")}
            journal.settle(STEPS, HASH, "out", Progress(5, 100), example)
            journal.close()
            self.sound = path.read_bytes()

    def mutation(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return damaged(self.sound, rng)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal"
            path.write_bytes(self.sound)
            with closing(sqlite3.connect(path)) as forged:
                for _ in range(rng.randrange(1, 4)):
                    table = rng.choice(list(COLUMNS))
                    change = rng.choice(CHANGES[:1] * 6 + CHANGES).format(
                        table=table, column=rng.choice(COLUMNS[table])
                    )
                    try:
                        with forged:
                            forged.execute(change, (rng.choice(ODD),) if "?" in change else ())
                    except sqlite3.Error:
                        continue  # the tables themselves do not allow it
            return path.read_bytes()

    def place(self, content: bytes, folder: Path) -> None:
        (folder / OUT).mkdir()
        (folder / OUT / "journal").write_bytes(content)

    def target(self, folder: Path) -> None:
        journal = Journal.opened(folder / OUT / "journal")
        try:
            journal.resume(Path("state"), STEPS, HASH)
            rows = list(journal.rows(after=0))
            journal.progress("out")
            journal.examples()
            journal.knows("key1")
            journal.add(STEPS + 1, "new", None, {"image": "new.png"})
            journal.write(STEPS + 1)
            journal.settle(STEPS + 1, HASH, "out", Progress(len(rows), 100), {})
        finally:
            journal.close()
