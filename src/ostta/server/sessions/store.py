"""Where sessions are stored: their snapshots, history, idempotency keys and leases.

A session has one writer. The store gives a lease with a fencing number to the process that loads a session, and every
snapshot is written in one transaction with a check of that number. A process that lost its lease, because it was paused
or cut off, cannot overwrite what its successor stored.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...core.types import Error
from ...io import parse_json
from ..logs import log
from .databases import Cursor, Row, migrate, open_database

# Ids are 128 random bits.
ID = re.compile(r"[0-9a-f]{32}")
LEASE_SECONDS = 10.0
# Renewals of a lease before it expires.
RENEWALS = 5
POINT = "prediction"


def new_id() -> str:
    """Return a random session id.

    >>> is_id(new_id()), is_id("../etc/passwd")
    (True, False)
    """
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Return whether `text` has the form of a session id."""
    return ID.fullmatch(text) is not None


class HeldError(Error):
    """Another running process has the lease of the session."""

    code = "session-held"


class LostError(Error):
    """This process no longer has the lease of the session, so it must not answer for the session."""

    code = "session-lost"


class MissingError(Error):
    """There is no such session."""

    code = "session-unknown"


class Entry(NamedTuple):
    """A chart point or an event of a session; `content` is JSON."""

    number: int
    kind: str
    time: float
    content: str


class StoredAnswer(NamedTuple):
    """The answer to an image with an idempotency key; `content` is JSON."""

    digest: str
    place: int
    content: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A session as it is stored.

    `save` takes the entries and answers that are new since the last save; `load` returns all of them. Entries and
    answers before `first_point`, `first_event` and `first_answer` are deleted, and entries from before the time
    `since`.
    """

    id: str
    state: bytes
    about: dict[str, Any]
    entries: Sequence[Entry] = ()
    answers: Sequence[StoredAnswer] = ()
    first_point: int = 0
    first_event: int = 0
    first_answer: int = 0
    since: float = 0.0


class SessionStore:
    """Sessions in a SQLite file (`place` is its folder) or in PostgreSQL (`place` is its address).

    `exclusive` keeps other servers out. Without it, several processes share the store, and each session belongs to the
    one that has its lease. A lease is renewed in the background; it expires `lease_seconds` after its process ended.

    >>> store = SessionStore(Path("state"))
    >>> id = new_id()
    >>> store.create(Stored(id, b"a snapshot", {"name": "door"}))
    >>> store.release(id)
    >>> store.load(id).about, store.ids() == [id]
    ({'name': 'door'}, True)
    >>> store.close()
    """

    def __init__(
        self,
        place: str | Path,
        *,
        name: str = "server",
        exclusive: bool = False,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        if not lease_seconds > 0:
            raise Error(
                f"A lease of {lease_seconds} seconds is not possible: give a number above 0.", code="lease-invalid"
            )
        self.name, self.holder, self._seconds = name, secrets.token_hex(8), lease_seconds
        self._database = self._leases = open_database(place, exclusive)
        # The fencing number of each session whose lease this process has. Threads share it, in single operations.
        self._fences: dict[str, int] = {}
        self._stop = threading.Event()
        self._published = "{}"
        # Another server has the lock of this exclusive store, which was lost with the connection.
        self.locked_out = False
        # Nobody else can take a lease from an exclusive SQLite file, so leases need no renewal there.
        renews = not exclusive or not isinstance(place, Path)
        self._thread = threading.Thread(target=self._renew_on, name="ostta-lease", daemon=True) if renews else None
        try:
            if not exclusive:
                # Leases have a connection of their own, so that a renewal does not wait for the write of a snapshot.
                self._leases = open_database(place, exclusive)
            migrate(self._database)
            if exclusive and renews:
                self._await_leases()
            if exclusive:
                self._run("DELETE FROM holders")
            self.renew()
        except BaseException:
            self._close()
            raise
        if self._thread is not None:
            self._thread.start()

    # --- reading without a lease --------------------------------------------------------------------------------------
    def ids(self) -> list[str]:
        """Return the ids of all sessions."""
        return [id for (id,) in self._run("SELECT id FROM sessions ORDER BY id")]

    def held_ids(self) -> list[str]:
        """Return the ids of the sessions whose lease this process has, as far as it knows."""
        return sorted(self._fences)

    def count(self) -> int:
        """Return the number of sessions."""
        return int(self._run("SELECT count(*) FROM sessions")[0][0])

    def exists(self, id: str) -> bool:
        """Return whether there is such a session."""
        return bool(self._run("SELECT 1 FROM sessions WHERE id = ?", id))

    def about(self, id: str) -> dict[str, Any]:
        """Return what was last stored about a session, without its state."""
        rows = self._run("SELECT about FROM sessions WHERE id = ?", id)
        if not rows:
            raise _missing(id)
        return _parsed(id, rows[0][0])

    def all_about(self) -> dict[str, dict[str, Any]]:
        """Return what was last stored about each session; damaged rows are left out."""
        sessions = {}
        for id, text in self._run("SELECT id, about FROM sessions"):
            with suppress(Error):
                sessions[id] = _parsed(id, text)
        return sessions

    def published(self) -> list[dict[str, Any]]:
        """Return what the running processes last published."""
        rows = self._run(f"SELECT published FROM holders WHERE expires > {self._database.now}")
        return [content for (text,) in rows if (content := parse_json(text))]

    # --- one session --------------------------------------------------------------------------------------------------
    def load(self, id: str) -> Stored:
        """Take the lease of a session and return what is stored.

        Raises `HeldError` if another running process has the lease, and `MissingError` if there is no such session.
        """
        fence = self._acquire(id)
        try:
            rows = self._run("SELECT about, state FROM sessions JOIN snapshots ON session = id WHERE id = ?", id)
            if not rows:
                raise Error(f"The snapshot of the session {id} is missing in the store.", code="snapshot-damaged")
            entries = self._run("SELECT number, kind, time, content FROM history WHERE session = ? ORDER BY number", id)
            answers = self._run("SELECT digest, place, content FROM answers WHERE session = ? ORDER BY place", id)
            about, state = rows[0]
            stored = Stored(
                id,
                bytes(state),
                _parsed(id, about),
                [Entry(*row) for row in entries],
                [StoredAnswer(*row) for row in answers],
            )
        except BaseException:
            self._give_back(id, fence)
            raise
        self._fences[id] = fence
        return stored

    def create(self, session: Stored) -> None:
        """Store a new session; this process has its lease from the start."""
        if not is_id(session.id):
            raise _missing(session.id)

        def work(cursor: Cursor) -> bool:
            # The holder is part of the condition because the transaction may run twice.
            accepted = cursor.execute(
                f"INSERT INTO sessions (id, holder, fence, saved, about) VALUES (?, ?, 1, {self._database.now}, ?) "
                "ON CONFLICT (id) DO UPDATE SET about = excluded.about WHERE sessions.holder = excluded.holder "
                "AND sessions.fence = 1 RETURNING fence",
                (session.id, self.holder, json.dumps(session.about, ensure_ascii=False)),
            )
            if accepted:
                self._write(cursor, session, 1)
            return bool(accepted)

        if not self._database.run(work):
            raise HeldError(f"There is a session {session.id} already.")
        self._fences[session.id] = 1

    def save(self, session: Stored) -> None:
        """Store a snapshot durably with everything that belongs to it, or nothing.

        Raises `LostError` if this process does not have the lease any more.
        """
        fence = self._fences.get(session.id, 0)

        def work(cursor: Cursor) -> bool:
            accepted = cursor.execute(
                f"UPDATE sessions SET about = ?, saved = {self._database.now} WHERE id = ? AND holder = ? AND fence = "
                "? RETURNING fence",
                (json.dumps(session.about, ensure_ascii=False), session.id, self.holder, fence),
            )
            if accepted:
                self._write(cursor, session, fence)
            return bool(accepted)

        if not self._database.run(work):
            self._fences.pop(session.id, None)
            raise LostError(
                f"The session {session.id} has another writer since lease {fence}: this snapshot was not stored."
            )

    def _write(self, cursor: Cursor, session: Stored, fence: int) -> None:
        id = session.id
        cursor.execute(
            "INSERT INTO snapshots (session, fence, state) VALUES (?, ?, ?) "
            "ON CONFLICT (session) DO UPDATE SET fence = excluded.fence, state = excluded.state",
            (id, fence, session.state),
        )
        cursor.execute_many(
            "INSERT INTO history (session, number, kind, time, content) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (session, number) DO NOTHING",
            [(id, *entry) for entry in session.entries],
        )
        cursor.execute(
            "DELETE FROM history WHERE session = ? AND (time < ? OR number < CASE kind WHEN ? THEN ? ELSE ? END)",
            (id, session.since, POINT, session.first_point, session.first_event),
        )
        cursor.execute_many(
            "INSERT INTO answers (session, digest, place, content) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (session, digest) DO UPDATE SET place = excluded.place, content = excluded.content",
            [(id, *answer) for answer in session.answers],
        )
        cursor.execute("DELETE FROM answers WHERE session = ? AND place < ?", (id, session.first_answer))

    def delete(self, id: str) -> None:
        """Delete a session whose lease this process has; nothing happens if another process has it."""
        fence = self._fences.get(id)
        if fence is None:
            return
        self._run("DELETE FROM sessions WHERE id = ? AND holder = ? AND fence = ?", id, self.holder, fence)
        self._fences.pop(id, None)

    def is_held(self, id: str) -> bool:
        """Return whether this process has the lease of a session now; `save` is what decides."""
        fence = self._fences.get(id)
        return fence is not None and bool(
            self._run("SELECT 1 FROM sessions WHERE id = ? AND holder = ? AND fence = ?", id, self.holder, fence)
        )

    def require_free(self, id: str) -> None:
        """Raise what `load` would raise, without taking the lease."""
        rows = self._run(
            "SELECT holders.id, name FROM sessions LEFT JOIN holders ON holder = holders.id AND expires > "
            f"{self._database.now} WHERE sessions.id = ?",
            id,
        )
        if not rows:
            raise _missing(id)
        holder, name = rows[0]
        if holder is not None and holder != self.holder:
            raise HeldError(f"The session {id} is held by {name}, which is running.")

    def release(self, id: str) -> None:
        """Give the lease of a session back, so that another process can take it at once."""
        fence = self._fences.pop(id, None)
        if fence is not None:
            self._give_back(id, fence)

    # --- this process -------------------------------------------------------------------------------------------------
    def publish(self, content: dict[str, Any]) -> None:
        """Publish `content` to other processes for as long as this process runs."""
        self._published = json.dumps(content, ensure_ascii=False)
        self.renew()

    def renew(self) -> None:
        """Renew all leases of this process."""
        now = self._database.now

        def work(cursor: Cursor) -> None:
            cursor.execute(
                f"INSERT INTO holders (id, name, expires, published) VALUES (?, ?, {now} + ?, ?) ON CONFLICT (id) DO "
                "UPDATE SET expires = excluded.expires, published = excluded.published",
                (self.holder, self.name, self._seconds, self._published),
            )
            cursor.execute(f"DELETE FROM holders WHERE expires < {now} - ?", (10 * self._seconds,))

        self._leases.run(work)

    def close(self) -> None:
        """Give all leases back and close the database."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

        def work(cursor: Cursor) -> None:
            cursor.execute("UPDATE sessions SET holder = NULL WHERE holder = ?", (self.holder,))
            cursor.execute("DELETE FROM holders WHERE id = ?", (self.holder,))

        try:
            self._database.run(work)
        except Error as problem:
            log("leases could not be given back", level="warning", problem=str(problem))
        self._fences.clear()
        self._close()

    # --- internals ----------------------------------------------------------------------------------------------------
    def _close(self) -> None:
        for database in {self._database, self._leases}:
            database.close()

    def _await_leases(self) -> None:
        """Wait until the leases of a server that was killed have expired; refuse a store whose server runs."""
        until = time.monotonic() + self._seconds
        while rows := self._run(f"SELECT name FROM holders WHERE expires > {self._database.now}"):
            if time.monotonic() > until:
                raise Error(f"The store is in use by {rows[0][0]}: stop that server first.", code="store-in-use")
            # A server lost its lock if the database was restarted, and takes it again while the connection is closed.
            self._database.close()
            time.sleep(0.1)

    def _acquire(self, id: str) -> int:
        if not is_id(id):
            raise _missing(id)
        rows = self._run(
            "UPDATE sessions SET holder = ?, fence = fence + 1 WHERE id = ? AND (holder IS NULL OR holder = ? OR "
            f"holder NOT IN (SELECT id FROM holders WHERE expires > {self._database.now})) RETURNING fence",
            self.holder,
            id,
            self.holder,
        )
        if not rows:
            self.require_free(id)
            raise HeldError(f"The session {id} was taken by another process.")
        return int(rows[0][0])

    def _give_back(self, id: str, fence: int) -> None:
        self._run("UPDATE sessions SET holder = NULL WHERE id = ? AND holder = ? AND fence = ?", id, self.holder, fence)

    def _run(self, statement: str, *values: Any) -> list[Row]:
        if statement.startswith("SELECT"):
            return self._database.query(statement, values)
        return self._database.run(lambda cursor: cursor.execute(statement, values))

    def _renew_on(self) -> None:
        while not self._stop.wait(self._seconds / RENEWALS):
            try:
                self.renew()
                self.locked_out = False
            except Error as problem:
                self.locked_out = problem.code == "store-in-use"
                log("leases could not be renewed", level="warning", problem=str(problem))


def _missing(id: str) -> MissingError:
    return MissingError(f"There is no session {id[:40]!r}.")


def _parsed(id: str, text: str) -> dict[str, Any]:
    try:
        about = parse_json(text)
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise Error(
            f"What is stored about the session {id} is damaged: it is not a JSON object.", code="snapshot-damaged"
        )
    return about
