"""A folder of results: result files, notes of failed runs, and a lock for each run."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core.errors import translate_errors
from ..core.types import Error
from ..io import make_folder, parse_json, read_regular, readable
from .result import Result, read_result, write_json
from .spec import RunSpec, is_frozen, run_key

FAILED, LOCKS = "failed", ".locks"


@dataclass(frozen=True)
class RunInputs:
    """Inputs of a run. A result is reused only if its spec and its inputs are equal."""

    weight_hash: str
    stream_identity: str
    class_names_hash: str

    def match(self, result: Result) -> bool:
        """Return whether `result` was computed from these inputs; always False without a stream identity."""
        return self == RunInputs(result.weight_hash, result.stream.identity or "", result.class_names_hash)


def class_names_hash(names: Sequence[str]) -> str:
    """Return the hash of class names in label order."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()


@dataclass(frozen=True)
class StoredResult:
    """A result and its file. The records are beside it."""

    path: Path
    result: Result

    @property
    def records(self) -> Path | None:
        """The file of records, if it exists."""
        name = self.result.records
        return self.path.parent / name if name is not None and (self.path.parent / name).is_file() else None


class ResultFolder:
    """The results of a folder. Each file is read once; `refresh` reads the files that are new since then.

    containing: read only the files with this text in them. Most files of a large folder are of other streams.
    """

    def __init__(self, path: Path, containing: str = "") -> None:
        if not path.is_dir():
            raise Error(
                f"There is no folder {path} to read results from; `ostta run --out {path}` makes it.",
                code="results-missing",
            )
        self.path, self._containing = path, containing
        # Names of JSON files that are not results of this version.
        self.unreadable: list[str] = []
        self._read: set[str] = set()
        self._stored: list[StoredResult] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the files that other processes have written since the last call, the oldest first."""
        new = [path for path in self.path.glob("*.json") if path.name not in self._read]
        for path in sorted(new, key=_age):
            self._read.add(path.name)
            try:
                # A file that cannot be read is not a result.
                if self._containing and self._containing not in path.read_text(encoding="utf-8", errors="replace"):
                    continue
                self._stored.append(StoredResult(path, read_result(path)))
            except (Error, OSError):
                self.unreadable.append(readable(path.name))
        self.__dict__.pop("by_key", None)

    @cached_property
    def by_key(self) -> dict[str, list[StoredResult]]:
        """All results of each run, the oldest first."""
        found: dict[str, list[StoredResult]] = {}
        for stored in self._stored:
            found.setdefault(run_key(stored.result.spec), []).append(stored)
        return found

    @property
    def newest(self) -> dict[str, StoredResult]:
        """The newest result of each run. Runs are ordered by their first file."""
        return {key: stored[-1] for key, stored in self.by_key.items()}

    def older(self, keys: Collection[str] | None = None) -> int:
        """Count the results of these runs (default: all) that a newer file replaces."""
        return sum(len(stored) - 1 for key, stored in self.by_key.items() if keys is None or key in keys)

    def existing(self, spec: RunSpec, *, records: bool = False) -> list[Result]:
        """Return the results of a run; with `records`, those whose records exist."""
        found = self.by_key.get(run_key(spec), [])
        return [stored.result for stored in found if not records or stored.records is not None]

    def frozen_for(self, result: Result) -> Result | None:
        """Return the newest frozen result on the same stream, with the same weights, classes and precision.

        None if there is none, or if `result` is a frozen result itself.
        """
        if is_frozen(result.spec):
            return None
        alike = [
            other.result
            for other in self._stored
            if is_frozen(other.result.spec)
            and other.result.stream_identity == result.stream_identity
            and other.result.weight_hash == result.weight_hash
            and other.result.class_names_hash == result.class_names_hash
            # The other fields with the role "machine" only change the last bits of scores.
            and other.result.spec.dtype == result.spec.dtype
        ]
        return alike[-1] if alike else None

    def require_results(self) -> ResultFolder:
        """Return the folder; an Error if it has no results."""
        if not self._stored:
            raise Error(
                f"There are no results in {self.path}; `ostta run --out {self.path}` makes one.", code="results-missing"
            )
        return self

    def failures(self, keys: Collection[str] | None = None) -> tuple[Failure, ...]:
        """Return the failed runs, or those with these keys, and the notes that cannot be read."""
        found = []
        for path in sorted((self.path / FAILED).glob("*.json")):
            try:
                content: dict[str, Any] = parse_json(read_regular(path, "failure file"))
                spec = RunSpec.model_validate(content["spec"])
                key, reason = run_key(spec), str(content["reason"])
            except (Error, OSError, ValueError, KeyError, TypeError, RecursionError):
                found.append(Failure(readable(path.name), "This note of a failed run cannot be read."))
                continue
            if keys is None or key in keys:
                options = [f"{name}={value}" for name, value in spec.options.items()]
                parts = [spec.backbone, spec.method, *options, spec.desired, spec.undesired or "closed set"]
                found.append(Failure(", ".join([*parts, spec.scenario.kind, f"seed {spec.seed}"]), reason))
        return tuple(found)


def _age(path: Path) -> tuple[int, str]:
    """Return the order of writing. A file without a status, such as a broken link, counts as the oldest."""
    try:
        return path.stat().st_mtime_ns, path.name
    except OSError:
        return 0, path.name


@dataclass(frozen=True)
class Failure:
    """A run that has no result, and the reason."""

    run: str
    reason: str


def write_failure(out: Path, spec: RunSpec, reason: str, traceback: str | None) -> None:
    """Write a note that the run failed."""
    path = _failure_path(out, spec)
    make_folder(path.parent)
    write_json({"spec": spec.model_dump(mode="json"), "reason": reason, "traceback": traceback}, path)


def remove_failure(out: Path, spec: RunSpec) -> None:
    """Remove the note of a failed run that has a result now."""
    _failure_path(out, spec).unlink(missing_ok=True)


def _failure_path(out: Path, spec: RunSpec) -> Path:
    return out / FAILED / f"{run_key(spec)}.json"


class RunLock:
    """A lock on one run of a folder. It is held until `release`, or until its process ends.

    Without POSIX locks, as on Windows, locks have no effect: two programs on one folder may carry out the same run
    twice.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        os.close(self._handle)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(out: Path, spec: RunSpec) -> RunLock | None:
    """Lock the run `spec` of the folder `out`; None if another process holds the lock."""
    handle = _open(out, spec)
    try:
        _lock(handle, wait=False)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as problem:
        os.close(handle)
        message = f"The file system of {out} has no locks ({problem.strerror}): choose another folder."
        raise Error(message, code="lock-unavailable") from None
    return RunLock(handle)


def wait_for_lock(out: Path, spec: RunSpec) -> RunLock:
    """Lock the run, after waiting for the process that holds the lock."""
    held = try_lock(out, spec)
    if held is not None:
        return held
    warnings.warn("Another process carries out the same run. Waiting for it.", stacklevel=2)
    handle = _open(out, spec)
    _lock(handle, wait=True)
    return RunLock(handle)


def _lock(handle: int, *, wait: bool) -> None:
    """Lock a file; a BlockingIOError if another process holds the lock and `wait` is False."""
    locks = _flock()
    if locks is None:
        warnings.warn(
            "This system has no POSIX file locks: use only one program at a time on a folder of results.",
            stacklevel=3,
        )
    else:
        locks.flock(handle, locks.LOCK_EX if wait else locks.LOCK_EX | locks.LOCK_NB)


def _flock() -> ModuleType | None:
    """Return the module with the locks, if the system has it."""
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl


def _open(out: Path, spec: RunSpec) -> int:
    # Lock files are not removed: if one were removed while a process waits for it, two processes could hold the lock.
    folder = out / LOCKS
    make_folder(folder)
    path = folder / f"{run_key(spec)}.lock"
    with translate_errors("lock-unavailable", f"The lock {path} cannot be made ({{reason}}).", OSError):
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
