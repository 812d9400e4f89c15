"""Where sessions live when the process does not: a state file and a few words about each."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..core.types import Error
from ..io import make_folder, parse_json, read_regular, write_atomically

# Ids are 128 random bits. Whatever has another form is no id, and never becomes part of a path.
ID = re.compile(r"[0-9a-f]{32}")
_STATE = re.compile(r"[0-9a-f]{16}\.ostta")
ABOUT = "session.json"
LOCK = ".lock"
FORMAT = 1


def new_id() -> str:
    """A random id.

    >>> is_id(new_id()), is_id("../etc/passwd")
    (True, False)
    """
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Whether `text` has the form of an id."""
    return ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """A session as it is stored: `about` is what its state file does not say, such as its name and counts."""

    id: str
    state: bytes
    about: dict[str, Any]


class LostError(Error):
    """Another process has the session now: whoever gets this must not answer for it any more."""


class SessionStore(Protocol):
    """Stored sessions by id. `save` replaces both parts at once or not at all; an Error says why not.

    Where several processes share a store, `save` raises a `LostError` for whoever is not the session's writer any more.
    """

    def ids(self) -> list[str]:
        """The ids of all that are stored."""

    def load(self, id: str) -> Stored:
        """One of them; an Error where it is damaged or not there."""

    def save(self, session: Stored) -> None:
        """Store it durably: when this returns, it survives the end of the process and of the machine."""

    def delete(self, id: str) -> None:
        """Forget it; nothing happens where it is not there."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other servers of one process out of a folder of sessions: each would overwrite what the other stores.

    SQLite locks the file on every system, and the system removes the lock when the process ends, however it ends.

    >>> with locked(Path("sessions")), locked(Path("sessions")):
    ...     pass
    Traceback (most recent call last):
    ostta.core.types.Error: The folder sessions is in use by another server: stop that server, or choose another --state-dir.
    """
    make_folder(folder)
    try:
        connection = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)
    except sqlite3.Error as problem:
        raise Error(f"The folder {folder} cannot be locked ({problem}): choose another --state-dir.") from None
    with closing(connection):
        try:
            connection.execute("PRAGMA journal_mode = MEMORY")  # no second file beside the lock
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorname", "") == "SQLITE_BUSY":
                raise Error(
                    f"The folder {folder} is in use by another server: stop that server, or choose another --state-dir."
                ) from None
            raise Error(f"The folder {folder} cannot be locked ({problem}): choose another --state-dir.") from None
        yield


class FolderStore:
    """Sessions in a folder, each in a folder of its own that is called by its id: session.json, which names the state file beside it.

    The state is written first, under a new name. Whoever is killed between the two leaves the old pair as it was.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._folder = folder

    def ids(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob(f"*/{ABOUT}") if is_id(path.parent.name))

    def load(self, id: str) -> Stored:
        path = self._place(id) / ABOUT
        try:
            content = parse_json(read_regular(path, "file about a session").decode())
        except ValueError:
            raise Error(f"{path} is damaged: it is not JSON.") from None
        about = content.get("about") if isinstance(content, dict) and content.get("format") == FORMAT else None
        name = content.get("state") if isinstance(content, dict) else None
        if not isinstance(about, dict) or not isinstance(name, str) or not _STATE.fullmatch(name):
            raise Error(f"{path} is damaged, or was written by a later version of ostta.")
        return Stored(id, read_regular(path.parent / name, "state file"), about)

    def save(self, session: Stored) -> None:
        place = self._place(session.id)
        state = place / f"{secrets.token_hex(8)}.ostta"
        make_folder(place)
        try:
            write_atomically(state, session.state)
            content = {"format": FORMAT, "state": state.name, "about": session.about}
            write_atomically(place / ABOUT, json.dumps(content, ensure_ascii=False).encode())
        except BaseException:
            with suppress(OSError):
                os.unlink(state)
            with suppress(OSError):  # the folder of a session that was not stored before is empty again
                place.rmdir()
            raise
        for other in place.iterdir():  # earlier states, and what killed processes left
            if other != state and other.name != ABOUT:
                with suppress(OSError):
                    other.unlink()

    def delete(self, id: str) -> None:
        place = self._place(id)
        try:
            (place / ABOUT).unlink(missing_ok=True)
            if place.exists():
                shutil.rmtree(place)
        except OSError as problem:
            raise Error(f"The session {id} could not be deleted ({problem.strerror}).") from None

    def _place(self, id: str) -> Path:
        if not is_id(id):
            raise Error(f"An id has 32 hexadecimal digits, and {id[:40]!r} is none.")
        return self._folder / id
