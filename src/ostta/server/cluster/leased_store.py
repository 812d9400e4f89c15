"""Sessions in a folder that many processes share, each written by the one that has its lease."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.types import Error
from ...io import make_folder, parse_json
from ..store import FolderStore, LostError, SessionStore, Stored, is_id, locked
from .holder import Holder
from .leases import HeldError, Lease, MissingError, StaleError, create, current, read, take

SESSIONS, HOLDERS = "leased", "holders"
_STATE, _ABOUT = "ostta", "json"


class LeasedStore:
    """Stored sessions for one process of several. `ids` are those that it holds; `load` takes a lease, and `release` gives it back.

    >>> from pathlib import Path
    >>> one, other = LeasedStore(Path("shared"), "one"), LeasedStore(Path("shared"), "other")
    >>> one.save(Stored("0" * 32, b"a state", {"name": "door"}))
    >>> one.release("0" * 32)
    >>> other.load("0" * 32).about, one.about("0" * 32)
    ({'name': 'door'}, {'name': 'door'})
    >>> one.ids(), one.all_ids() == other.ids()
    ([], True)
    >>> one.close(), other.close()
    (None, None)
    """

    def __init__(self, folder: Path, name: str, holder: Holder | None = None) -> None:
        self._folder = folder / SESSIONS
        make_folder(self._folder)
        self.holder = holder or Holder(folder / HOLDERS, name).start()
        self._leases: dict[str, Lease] = {}
        self._changing = threading.Lock()

    def ids(self) -> list[str]:
        with self._changing:
            return sorted(self._leases)

    def all_ids(self) -> list[str]:
        """The ids of all sessions, whoever holds them."""
        return sorted(name for name in os.listdir(self._folder) if is_id(name))

    def load(self, id: str) -> Stored:
        """The session, whose lease this process has from here on; HeldError where another that lives has it."""
        lease = take(self._place(id), self.holder)
        try:
            files = read(lease.folder)
            stored = Stored(id, files[_STATE], _parsed(id, files[_ABOUT]))
        except BaseException as problem:
            lease.release()
            if isinstance(problem, KeyError):
                raise Error(f"The snapshot of the session {id} is incomplete.") from None
            raise
        with self._changing:
            self._leases[id] = lease
        return stored

    def save(self, session: Stored) -> None:
        """Store it; LostError where another process has taken the lease meanwhile."""
        about = json.dumps(session.about, ensure_ascii=False).encode()
        files = {_STATE: session.state, _ABOUT: about}
        with self._changing:
            lease = self._leases.get(session.id)
        if lease is not None:
            try:
                lease.save(files)
            except StaleError as problem:
                with self._changing:
                    self._leases.pop(session.id, None)
                raise LostError(str(problem)) from None
            return
        lease = create(self._place(session.id), self.holder, files)
        with self._changing:
            self._leases[session.id] = lease

    def delete(self, id: str) -> None:
        with self._changing:
            lease = self._leases.get(id)
        if lease is not None:
            with suppress(StaleError):  # whoever has it now decides
                lease.delete()
            with self._changing:
                self._leases.pop(id, None)

    def is_held(self, id: str) -> bool:
        """Whether this process has the session, as far as can be seen."""
        with self._changing:
            lease = self._leases.get(id)
        return lease is not None and lease.is_held()

    def require_free(self, id: str) -> None:
        """HeldError where another process that lives has the session, MissingError where there is none; nothing is taken."""
        token = current(self._place(id))
        if token.held and token.holder != self.holder.key and not self.holder.is_gone(token.holder):
            name = self.holder.name_of(token.holder)
            raise HeldError(f"The session {id} is held by {name}, which lives.", name)

    def release(self, id: str) -> None:
        """Let another process have the session; save it before."""
        with self._changing:
            lease = self._leases.pop(id, None)
        if lease is not None:
            lease.release()

    def exists(self, id: str) -> bool:
        """Whether there is such a session, whoever holds it."""
        try:
            current(self._place(id))
        except MissingError:
            return False
        return True

    def about(self, id: str) -> dict[str, Any]:
        """What was last stored about a session, whoever holds it."""
        return _parsed(id, read(self._place(id), (_ABOUT,))[_ABOUT])

    def close(self) -> None:
        """Give all leases back."""
        for id in self.ids():
            self.release(id)
        self.holder.close()

    def _place(self, id: str) -> Path:
        if not is_id(id):
            raise MissingError(f"There is no session {id[:40]!r}.")
        return self._folder / id


def adopt(folder: Path, store: LeasedStore) -> int:
    """Take over the sessions that a server of one process left in `folder`; how many they were.

    Each is stored anew before the old one is taken away: whoever is killed between the two leaves both, and the new one counts.
    """
    plain: SessionStore = FolderStore(folder)
    left = plain.ids()
    if not left:
        return 0
    with locked(folder):
        return _adopt(plain, store)


def _adopt(plain: SessionStore, store: LeasedStore) -> int:
    left = plain.ids()
    for id in left:
        if not store.exists(id):
            try:
                store.save(plain.load(id))
                store.release(id)
            except Error:
                # Another process that starts now may have been first.
                if not store.exists(id):
                    raise
        plain.delete(id)
    return len(left)


def _parsed(id: str, content: bytes) -> dict[str, Any]:
    try:
        about = parse_json(content)
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise Error(f"What was stored about the session {id} is damaged: it is no JSON object.")
    return about
