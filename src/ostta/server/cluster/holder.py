"""Who holds leases, and whether it still lives: a file that each process of a cluster keeps in the shared folder.

The file has a counter that its process raises again and again. Another process looks at it, and where the counter has not moved for
`term` seconds *of its own clock*, the first one counts as gone. So no two machines' clocks are compared. A clock that jumps back makes
the watching begin anew; one that jumps forward may take a session from a process that lives, which its number makes harmless.

Where both run under one kernel, a lock on the file says at once that a process has ended, however it did.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from ...core.types import Error
from ...io import make_folder, parse_json

TERM = 10.0
# Beats in a term. A process that misses one or two of them is still there.
BEATS = 5
_DIGITS = 20


class Holder:
    """One process that may hold leases on sessions. `start` raises its counter in the background until `close`.

    >>> from pathlib import Path
    >>> one, other = Holder(Path("holders"), "one"), Holder(Path("holders"), "other")
    >>> other.is_gone(one.key)
    False
    >>> one.close()
    >>> other.is_gone(one.key)
    True
    """

    def __init__(
        self, folder: Path, name: str, *, term: float = TERM, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not term > 0:
            raise Error(f"The term of a lease is a number of seconds above 0, not {term}.")
        self.folder, self.name, self.term = folder, name, term
        self.key = secrets.token_hex(8)
        # One thread of this process at a time takes a lease or gives one back.
        self.taking = threading.RLock()
        self._clock = clock
        self._seen: dict[str, tuple[bytes | None, float]] = {}
        self._watching = threading.Lock()
        self._count = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        make_folder(folder)
        self._handle = self._made()

    def start(self) -> Self:
        """Beat in the background."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat_on, name="ostta-lease", daemon=True)
            self._thread.start()
        return self

    def beat(self) -> None:
        """Show that this process lives, and look at which others do. A disk that refuses it is tried again at the next beat."""
        self._count += 1
        with suppress(OSError):
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, f"{self._count:0{_DIGITS}d}".encode())
            os.fsync(self._handle)
        with suppress(OSError):
            others = {name for name in os.listdir(self.folder) if name != self.key and not name.startswith(".")}
            for key in others:
                self.is_gone(key)
            with self._watching:
                self._seen = {key: seen for key, seen in self._seen.items() if key in others}

    def is_gone(self, key: str) -> bool:
        """Whether the holder `key` has ended, or was not heard of for a term."""
        if key == self.key:
            return False
        try:
            content = (self.folder / key).read_bytes()
        except FileNotFoundError:
            # Its file is there before any lease names it, and is taken away after the last one was given back.
            return True
        except OSError:
            return False
        if self._has_ended(key, content):
            return True
        with self._watching:
            now = self._clock()
            seen, since = self._seen.get(key, (None, now))
            if seen != content or now < since:
                self._seen[key] = (content, now)
                return False
            return now - since >= self.term

    def name_of(self, key: str) -> str:
        """What the holder `key` calls itself, as far as that can be read."""
        try:
            return str(_described((self.folder / key).read_bytes())["name"])
        except (OSError, ValueError, KeyError):
            return key

    def close(self) -> None:
        """End: whoever looks now knows that this process holds nothing more."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with suppress(OSError):
            os.unlink(self.folder / self.key)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    # --- inside -------------------------------------------------------------------------------------------------------
    def _made(self) -> int:
        """The file, locked before it has the name that others look for."""
        hidden = self.folder / f".{self.key}"
        try:
            handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            about = json.dumps({"name": self.name, "process": os.getpid(), "kernel": _kernel()})
            os.write(handle, f"{0:0{_DIGITS}d}\n{about}\n".encode())
            os.fsync(handle)
            locks = _flock()
            if locks is not None:
                # A file system without locks: the counter alone says who lives.
                with suppress(OSError):
                    locks.flock(handle, locks.LOCK_EX | locks.LOCK_NB)
            os.rename(hidden, self.folder / self.key)
        except OSError as problem:
            raise Error(f"The file of a lease holder in {self.folder} cannot be made ({problem.strerror}).") from None
        return handle

    def _has_ended(self, key: str, content: bytes) -> bool:
        """Whether nobody has the lock of a holder under this kernel. Another kernel's locks may not be seen from here."""
        locks = _flock()
        try:
            if locks is None or not _kernel() or _described(content)["kernel"] != _kernel():
                return False
            handle = os.open(self.folder / key, os.O_RDWR)
        except (OSError, ValueError, KeyError):
            return False
        try:
            locks.flock(handle, locks.LOCK_EX | locks.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        with suppress(OSError):
            os.unlink(self.folder / key)
        return True

    def _beat_on(self) -> None:
        while not self._stop.wait(self.term / BEATS):
            self.beat()


def _described(content: bytes) -> dict[str, Any]:
    described = parse_json(content[_DIGITS:])
    if not isinstance(described, dict):
        raise ValueError("not a description of a holder")
    return described


def _kernel() -> str:
    """What two processes under the same running kernel have in common, and no others; "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _flock() -> ModuleType | None:
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl
