"""One writer for each session: a lease with a number that rises, in a folder that all writers share.

A session is a folder. Exactly one file in it, the *token*, has a name that says everything: the number of the lease, who holds it (or
that it is free), and which snapshot counts. Whoever changes one of the three renames the token, from the name that it knows:

    token.0000000007.3f9c....0000000006-0000000021      lease 7, holder 3f9c..., the 21st snapshot that was written under lease 6

A rename succeeds only if the file still has the old name. So it is a comparison and an exchange in one step, made by the file system:
of two that take the same lease one succeeds, and a writer that was paused, or cut off, and lost its lease meanwhile, finds that the
name it knows is gone. Its snapshot is refused, whatever its clock says. A snapshot's files are written under new names before, so that
nothing is ever overwritten, and a reader finds the old snapshot or the new one, whole.

What is assumed of the file system: a rename is atomic for all machines, and a file that was synced and closed is read whole by others
that open it afterwards. Local file systems, NFS (3 and later), CephFS and Lustre do this; object stores mounted as folders do not.
Where NFS repeats a rename whose answer was lost, the second one fails though the first was done: the new name, which nobody else uses,
is looked for then. Locks are not needed for any of this; `holder.py` uses one to see sooner that a process has ended.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.types import Error
from ...io import make_folder, write_atomically
from .holder import Holder

_FREE = "free"
_DELETED = "deleted"
# A name may be missed in a listing while it changes.
_LOOKS = 20


class HeldError(Error):
    """Another process that lives has the lease: try again later, or ask that one."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class StaleError(Error):
    """This process no longer has the lease: what it wanted to write was not accepted."""


class MissingError(Error):
    """There is no such session."""


@dataclass(frozen=True, slots=True)
class Token:
    """What the name of a token says."""

    number: int
    holder: str
    snapshot: str

    @property
    def name(self) -> str:
        return f"token.{self.number:010d}.{self.holder}.{self.snapshot}"

    @property
    def held(self) -> bool:
        return self.holder not in (_FREE, _DELETED)

    @staticmethod
    def of(name: str) -> Token | None:
        parts = name.split(".")
        if len(parts) != 4 or parts[0] != "token" or not parts[1].isdigit():
            return None
        return Token(int(parts[1]), parts[2], parts[3])


class Lease:
    """The right to write one session, until it is given back or taken.

    >>> from pathlib import Path
    >>> holder = Holder(Path("holders"), "one")
    >>> lease = create(Path("door"), holder, {"state": b"at the start"})
    >>> lease.save({"state": b"after 100 steps"})
    >>> lease.number, read(Path("door"))
    (1, {'state': b'after 100 steps'})
    >>> lease.release()
    >>> take(Path("door"), holder).number
    2
    >>> holder.close()
    """

    def __init__(self, folder: Path, token: Token) -> None:
        self.folder, self._token = folder, token
        self._written = 0
        self._ended = False
        # Between the rename and the note of it the old name is known here and gone on disk.
        self._renaming = threading.Lock()

    @property
    def number(self) -> int:
        return self._token.number

    def is_held(self) -> bool:
        """Whether nobody has taken the lease, as far as can be seen now; `save` is what decides."""
        with self._renaming:
            return not self._ended and os.path.exists(self.folder / self._token.name)

    def save(self, files: Mapping[str, bytes]) -> None:
        """Make `files`, by name, the session's snapshot, all of them or none; files of the last one that are not named stay.

        StaleError, where the lease was taken meanwhile: then nothing has changed.
        """
        self._written += 1
        wanted = replace(self._token, snapshot=f"{self.number:010d}-{self._written:010d}")
        try:
            for name, content in files.items():
                write_atomically(self.folder / f"{wanted.snapshot}.{name}", content)
            for name in _names(self.folder, self._token.snapshot) - set(files):
                _link(self.folder / f"{self._token.snapshot}.{name}", self.folder / f"{wanted.snapshot}.{name}")
        except (OSError, Error) as problem:
            _remove(self.folder, lambda other: other == wanted.snapshot)
            # Where files or the folder are missing, whoever has the lease now took them away.
            if not self.is_held():
                raise self._lost() from None
            if isinstance(problem, Error):
                raise
            raise Error(f"A snapshot of {self.folder.name} could not be written ({problem.strerror}).") from None
        try:
            self._become(wanted)
        except StaleError:
            _remove(self.folder, lambda other: other == wanted.snapshot)
            raise
        # Only older ones: whatever happens meanwhile, the snapshot that counts is this one or a later one.
        _remove(self.folder, lambda other: other < wanted.snapshot)

    def release(self) -> None:
        """Give the lease back: anybody may take it at once. Nothing happens where it was taken already."""
        with suppress(StaleError):
            self._become(replace(self._token, holder=_FREE))
        self._ended = True

    def delete(self) -> None:
        """Take the session away, with all that was kept of it."""
        # First the token, so that no other writer can be accepted; then the folder's name, so that none can write into it.
        self._become(replace(self._token, holder=_DELETED))
        self._ended = True
        _take_away(self.folder)

    def _become(self, token: Token) -> None:
        with self._renaming:
            if self._ended or not exchange(self.folder, self._token, token):
                raise self._lost()
            self._token = token

    def _lost(self) -> StaleError:
        return StaleError(
            f"The session {self.folder.name} has another writer since lease {self.number}: "
            "what this one wanted to write was not accepted."
        )


def create(folder: Path, holder: Holder, files: Mapping[str, bytes]) -> Lease:
    """A new session with its first snapshot, held from the start."""
    make_folder(folder.parent)
    try:
        folder.mkdir()
    except OSError as problem:
        raise Error(f"The folder {folder} of a new session cannot be made ({problem.strerror}).") from None
    token = Token(1, holder.key, f"{1:010d}-{0:010d}")
    try:
        for name, content in files.items():
            write_atomically(folder / f"{token.snapshot}.{name}", content)
        # Without a token there is no session: a process that ends before this leaves a folder that counts for nothing.
        write_atomically(folder / token.name, b"")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Lease(folder, token)


def take(folder: Path, holder: Holder) -> Lease:
    """The lease on a session that is free, or whose holder is gone; its number is higher than any before. Otherwise HeldError."""
    with holder.taking:
        while True:
            token = current(folder)
            if token.holder == holder.key:
                raise HeldError(f"This process has the session {folder.name} already.", holder.name)
            if token.held and not holder.is_gone(token.holder):
                name = holder.name_of(token.holder)
                raise HeldError(f"The session {folder.name} is held by {name}, which lives.", name)
            wanted = Token(token.number + 1, holder.key, token.snapshot)
            if exchange(folder, token, wanted):
                return Lease(folder, wanted)


def current(folder: Path) -> Token:
    """The session's token now."""
    for _ in range(_LOOKS):
        try:
            found = [token for token in map(Token.of, os.listdir(folder)) if token is not None]
        except (FileNotFoundError, NotADirectoryError):
            break
        if found:
            newest = max(found, key=lambda token: (token.number, token.snapshot))
            if newest.holder == _DELETED:
                _take_away(folder)
                break
            return newest
        time.sleep(0.005)
    raise MissingError(f"There is no session {folder.name}.")


def read(folder: Path, only: Collection[str] | None = None) -> dict[str, bytes]:
    """The files of the snapshot that counts, by name, or `only` some of them. No lease is needed."""
    while True:
        token = current(folder)
        files: dict[str, bytes] | None
        try:
            names = _names(folder, token.snapshot) if only is None else only
            files = {name: (folder / f"{token.snapshot}.{name}").read_bytes() for name in names}
        except FileNotFoundError:
            files = None
        # Else a newer one has taken its place while it was read.
        if current(folder).snapshot == token.snapshot:
            if files is None:
                raise Error(f"The snapshot {token.snapshot} of the session {folder.name} is incomplete.")
            return files


def exchange(folder: Path, known: Token, wanted: Token) -> bool:
    """Rename the token; False where it no longer has the name that is known."""
    try:
        os.rename(folder / known.name, folder / wanted.name)
    except FileNotFoundError:
        return os.path.exists(folder / wanted.name)
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    return True


def _names(folder: Path, snapshot: str) -> set[str]:
    start = f"{snapshot}."
    return {name.removeprefix(start) for name in os.listdir(folder) if name.startswith(start)}


def _remove(folder: Path, unwanted: Callable[[str], bool]) -> None:
    """Take away files of snapshots that do not count, also those that a process which was killed had begun."""
    with suppress(OSError):
        for name in os.listdir(folder):
            snapshot, _, rest = name.removeprefix(".").partition(".")
            if rest and snapshot[:1].isdigit() and unwanted(snapshot):
                with suppress(OSError):
                    os.unlink(folder / name)


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        write_atomically(new, old.read_bytes())


def _take_away(folder: Path) -> None:
    """Remove a deleted session. Its folder gets another name first, so that no writer of the past can write into it."""
    gone = folder.parent / f".{folder.name}.deleted"
    with suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
