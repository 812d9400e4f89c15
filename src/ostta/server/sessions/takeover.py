"""Sessions in the folders of earlier versions of ostta, which are moved into the store at the first start.

Up to version 0.2, a server of one process had a folder for each session, `ID/session.json` with a state file beside it.
Replicas on Ray had `leased/ID`, in which the name of one file, the token, named the current snapshot.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ...core.types import Error
from ...io import parse_json, read_regular
from ..logs import log
from .store import SessionStore, Stored, StoredAnswer, is_id

LEASED = "leased"
Reader = Callable[[Path], tuple[bytes, Any]]


def open_store(place: str | Path, folder: Path | None, **options: Any) -> SessionStore:
    """Open the store at `place` with the options of `SessionStore`, and move the sessions in `folder` into it."""
    store = SessionStore(place, **options)
    try:
        if folder is not None:
            take_over(folder, store)
    except BaseException:
        store.close()
        raise
    return store


def take_over(folder: Path, store: SessionStore) -> int:
    """Move the sessions of earlier versions from `folder` into the store, and return how many there were.

    A session is stored before its folder is deleted: a process that is killed in between leaves both, and the next
    start uses the stored session. A folder that cannot be read stays as it is, and `store.unreadable` gets its id.
    """
    readers: list[tuple[Path, Reader]] = [
        *((path.parent, _read_plain) for path in folder.glob("*/session.json") if is_id(path.parent.name)),
        *((path, _read_leased) for path in folder.glob(f"{LEASED}/*") if is_id(path.name)),
    ]
    if not readers:
        return 0
    _require_unused(folder)
    moved = 0
    for path, read in readers:
        try:
            if not store.exists(path.name):
                state, about = read(path)
                store.create(_stored(path.name, state, about))
                store.release(path.name)
            shutil.rmtree(path)
            moved += 1
        except (Error, OSError, ValueError, KeyError) as problem:
            store.unreadable.append(path.name)
            log(
                "session of an earlier version could not be taken over",
                level="error",
                session=path.name,
                problem=str(problem),
            )
    log("sessions of an earlier version taken over", sessions=moved, unreadable=len(store.unreadable))
    return moved


def _require_unused(folder: Path) -> None:
    """Refuse a folder that a server of an earlier version still uses: that server locks a file in it."""
    if not (folder / ".lock").exists():
        return
    with closing(sqlite3.connect(folder / ".lock", timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            raise Error(
                f"The folder {folder} is in use by a server of an earlier version: stop that server first.",
                code="store-in-use",
            ) from None


def _read_plain(folder: Path) -> tuple[bytes, Any]:
    content = parse_json(read_regular(folder / "session.json", "file about a session").decode())
    if not isinstance(content, dict) or content.get("format") != 1 or "/" in str(content["state"]):
        raise ValueError("session.json is damaged, or was written by a later version")
    return read_regular(folder / str(content["state"]), "state file"), content["about"]


def _read_leased(folder: Path) -> tuple[bytes, Any]:
    """The name of a token is `token.LEASE.HOLDER.SNAPSHOT`."""
    tokens = [path.name.split(".") for path in folder.glob("token.*.*.*")]
    if not tokens:
        raise ValueError("there is no token")
    snapshot = max(tokens, key=lambda parts: (parts[1], parts[3]))[3]
    about = parse_json(read_regular(folder / f"{snapshot}.json", "file about a session"))
    return read_regular(folder / f"{snapshot}.ostta", "state file"), about


def _stored(id: str, state: bytes, about: Any) -> Stored:
    """Idempotency keys were part of `about`, as lists of digest, checksum and values."""
    if not isinstance(about, dict):
        raise ValueError("what is known about the session is not a JSON object")
    rows = about.pop("answers", [])
    answers = [
        StoredAnswer(str(row[0]), place, json.dumps(row[1:]))
        for place, row in enumerate(rows if isinstance(rows, list) else [], 1)
        if isinstance(row, list) and len(row) > 2
    ]
    return Stored(id, state, about, answers=answers)
