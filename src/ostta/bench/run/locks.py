"""A lock on each run of a folder, so that two programs never carry out the same one. A lock ends with its process.

Systems without POSIX locks, such as Windows, have none of these locks: two programs on one folder there may carry out the same run twice.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import ModuleType, TracebackType

from ...core.types import Error
from ...io import make_folder
from ..spec import RunSpec, run_key

FOLDER = ".locks"


class RunLock:
    """A lock that is held until `release`, or until every process that has inherited it has ended."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @property
    def inherited(self) -> tuple[int, ...]:
        """What a child process is to inherit, where the system has locks that can be."""
        return (self._handle,) if _flock() else ()

    def release(self) -> None:
        os.close(self._handle)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def have_locks() -> bool:
    """Whether this system has locks that one process can hand over to another."""
    return _flock() is not None


def try_lock(out: Path, spec: RunSpec) -> RunLock | None:
    """The lock on the run `spec` of the folder `out`; None where another process has it."""
    handle = _open(out, spec)
    try:
        _lock(handle, wait=False)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as problem:
        os.close(handle)
        raise Error(f"The file system of {out} has no locks ({problem.strerror}): choose another folder.") from None
    return RunLock(handle)


def wait_for_lock(out: Path, spec: RunSpec) -> RunLock:
    """The lock on the run, after waiting for the process that has it."""
    held = try_lock(out, spec)
    if held is not None:
        return held
    warnings.warn("Another process is at work on this very run, and is waited for.", stacklevel=2)
    handle = _open(out, spec)
    _lock(handle, wait=True)
    return RunLock(handle)


def _lock(handle: int, *, wait: bool) -> None:
    """Lock a file; a BlockingIOError where another process has it and is not to be waited for."""
    locks = _flock()
    if locks is None:
        warnings.warn(
            "This system has no POSIX file locks: let only one program at a time work on a folder of results.",
            stacklevel=3,
        )
    else:
        locks.flock(handle, locks.LOCK_EX if wait else locks.LOCK_EX | locks.LOCK_NB)


def _flock() -> ModuleType | None:
    """The module with the locks, where the system has it."""
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl


def _open(out: Path, spec: RunSpec) -> int:
    # The files stay: one that is removed while somebody waits for it would let two in.
    folder = out / FOLDER
    make_folder(folder)
    path = folder / f"{run_key(spec)}.lock"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as problem:
        raise Error(f"The lock {path} cannot be made ({problem.strerror}).") from None
