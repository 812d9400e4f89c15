"""A folder of results: result files, notes of failed runs, and a lock for each run."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..core.types import Error
from ..io import make_folder, parse_json, read_regular, readable, write_atomically
from .result import Result, read_result
from .spec import RunSpec, is_frozen, run_key

FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """A run that came to no result, and why."""

    run: str
    reason: str


def write_failure(out: Path, spec: RunSpec, reason: str, traceback: str | None) -> None:
    """Write down in the folder `out` that the run failed."""
    path = _path(out, spec)
    make_folder(path.parent)
    content = {"spec": spec.model_dump(mode="json"), "reason": reason, "traceback": traceback}
    text = readable(json.dumps(content, indent=2, ensure_ascii=False))
    write_atomically(path, f"{text}\n".encode())


def remove_failure(out: Path, spec: RunSpec) -> None:
    """Remove the file of a failed run that has a result now."""
    _path(out, spec).unlink(missing_ok=True)


def read_failures(folder: Path, wanted: Collection[str] | None = None) -> tuple[Failure, ...]:
    """The failed runs in `folder`, or those with these keys, and the files that cannot be read."""
    found = []
    for path in sorted((folder / FAILED).glob("*.json")):
        try:
            content: dict[str, Any] = parse_json(read_regular(path, "failure file"))
            spec = RunSpec.model_validate(content["spec"])
            key, reason = run_key(spec), str(content["reason"])
        except (Error, OSError, ValueError, KeyError, TypeError, RecursionError):
            found.append(Failure(readable(path.name), "This note of a failed run cannot be read."))
            continue
        if wanted is None or key in wanted:
            options = [f"{name}={value}" for name, value in spec.options.items()]
            parts = [spec.backbone, spec.method, *options, spec.desired, spec.undesired or "closed set"]
            found.append(Failure(", ".join([*parts, spec.scenario.kind, f"seed {spec.seed}"]), reason))
    return tuple(found)


def _path(out: Path, spec: RunSpec) -> Path:
    return out / FAILED / f"{run_key(spec)}.json"


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


def results_in(folder: Path, strange: list[str]) -> Iterator[tuple[str, Path, Result]]:
    """The result files of `folder`, the oldest first, with their keys; what is no result is named in `strange`."""
    for path in sorted(folder.glob("*.json"), key=_age):
        try:
            result = read_result(path)
        except Error:
            strange.append(readable(path.name))
            continue
        yield run_key(result.spec), path, result


def _age(path: Path) -> tuple[int, str]:
    """The order of writing; what cannot be looked at, such as a link to nowhere, is the oldest."""
    try:
        return path.stat().st_mtime_ns, path.name
    except OSError:
        return 0, path.name


@dataclass(frozen=True)
class FoundFiles:
    """The results of a folder by run, the newest of each; `older` were replaced, `strange` are JSON files that are no results."""

    folder: Path
    results: dict[str, Result]
    paths: dict[str, Path]
    strange: tuple[str, ...]
    older: int


def read_folder(folder: Path) -> FoundFiles:
    """All result files of `folder`; an Error where it is not there."""
    if not folder.is_dir():
        raise Error(f"There is no folder {folder} to read results from; `ostta run --out {folder}` makes it.")
    results: dict[str, Result] = {}
    paths: dict[str, Path] = {}
    strange: list[str] = []
    older = 0
    for key, path, result in results_in(folder, strange):
        older += key in results
        results[key], paths[key] = result, path
    return FoundFiles(folder, results, paths, tuple(strange), older)


def frozen_result(result: Result, folder: Path) -> Result | None:
    """The newest in `folder`, whatever its file is called; None where there is none, or `result` is one itself."""
    if is_frozen(result.spec):
        return None
    found: tuple[int, Result] | None = None
    for path in folder.glob("*.json"):
        try:
            # Most files of a large folder are of other streams, and need not be read in full.
            if result.stream.hash not in path.read_text(encoding="utf-8", errors="replace"):
                continue
            other, written = read_result(path), path.stat().st_mtime_ns
        except (Error, OSError):
            continue
        if _comparable(other, result) and (found is None or written > found[0]):
            found = written, other
    return None if found is None else found[1]


def _comparable(frozen: Result, result: Result) -> bool:
    return (
        is_frozen(frozen.spec)
        and all(getattr(frozen, name) == getattr(result, name) for name in ("weight_hash", "class_names_hash"))
        and frozen.stream_identity == result.stream_identity
        and frozen.spec.dtype == result.spec.dtype
    )
