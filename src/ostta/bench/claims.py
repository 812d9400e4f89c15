"""Claims: a lock on each run of a folder, so that two programs never carry out the same one. A lock vanishes with its process."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import warnings
from pathlib import Path
from types import TracebackType

from ..core.types import Error
from ..files import make_folder
from .result import RunSpec

FOLDER = ".locks"


def run_key(spec: RunSpec) -> str:
    """Names a run by its spec alone, so that it is known before data and model are opened."""
    content = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


class Claim:
    """A lock that is held until `release`, or until every process that has inherited `handle` has ended."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def release(self) -> None:
        os.close(self.handle)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def try_claim(out: Path, spec: RunSpec) -> Claim | None:
    """The lock on the run `spec` of the folder `out`; None where another process has it."""
    handle = _open(out, spec)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as problem:
        os.close(handle)
        raise Error(f"The file system of {out} has no locks ({problem.strerror}): choose another folder.") from None
    return Claim(handle)


def wait_for_claim(out: Path, spec: RunSpec) -> Claim:
    """The same, after whoever has it."""
    held = try_claim(out, spec)
    if held is not None:
        return held
    warnings.warn("Another process is at work on this very run, and is waited for.", stacklevel=2)
    handle = _open(out, spec)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return Claim(handle)


def _open(out: Path, spec: RunSpec) -> int:
    # The files stay: one that is removed while somebody waits for it would let two in.
    folder = out / FOLDER
    make_folder(folder)
    path = folder / f"{run_key(spec)}.lock"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as problem:
        raise Error(f"The lock {path} cannot be made ({problem.strerror}).") from None
