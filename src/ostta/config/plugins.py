"""Plug-ins from entry points of installed packages and from Python files that the user names.

A package registers components through the entry-point groups `ostta.methods`, `ostta.scores`, `ostta.identifiers`,
`ostta.backbones`, `ostta.datasets` and `ostta.measures`. A user can also name a file, `path/file.py:Name`, on the
command line, in a suite or in Python; ostta then runs the file. Names in state files, result files and requests go
through `registered`, which runs no file.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from ..core.checks import shown
from ..core.errors import reason_of
from ..core.types import Error
from ..io import absolute_path, check_regular, read_regular

Kind = Literal["method", "score", "identifier", "backbone", "dataset", "measure"]
_MODULE = "ostta_file_"
# Files that were run: modules by path and hash, and sources by hash for workers that do not have the file.
_RUN: dict[tuple[str, str], types.ModuleType] = {}
_SOURCES: dict[str, bytes] = {}


# --- entry points -----------------------------------------------------------------------------------------------------
@cache
def _entry_points(kind: Kind) -> dict[str, metadata.EntryPoint]:
    """Return entry points by name. If two packages register the same name, the first one is used."""
    entry_points: dict[str, metadata.EntryPoint] = {}
    for each in metadata.entry_points(group=f"ostta.{kind}s"):
        entry_points.setdefault(each.name, each)
    return entry_points


def registered_names(kind: Kind) -> list[str]:
    """Return the names that installed packages register."""
    return list(_entry_points(kind))


def registered(kind: Kind, name: str) -> Any:
    """Load the entry point `name`, which is one of `registered_names`."""
    entry = _entry_points(kind)[name]
    package = "an installed package" if entry.dist is None else f"the package {entry.dist.name}"
    with _foreign_code(f"The {kind} {name!r} of {package} cannot be loaded"):
        return entry.load()


def registered_as(kind: Kind, thing: type[Any]) -> str | None:
    """Return the name under which a class is registered, or None."""
    place = f"{thing.__module__}:{thing.__qualname__}"
    return next((name for name, each in _entry_points(kind).items() if each.value == place), None)


def package(kind: Kind, name: str) -> str:
    """Return the package of a registered name and its version, such as "birds 1.0", or an empty string."""
    entry = _entry_points(kind).get(name)
    return "" if entry is None or entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


# --- files ------------------------------------------------------------------------------------------------------------
def names_file(name: object) -> bool:
    """Return whether `name` has the form path/file.py:Name.

    >>> names_file("mine.py:Mine"), names_file("rosita"), names_file("folder:mine.py")
    (True, False, False)
    """
    if not isinstance(name, str):
        return False
    path, _, thing = name.rpartition(":")
    return path.endswith(".py") and thing.isidentifier()


def placed_file(name: str, folder: Path | None = None) -> str:
    """Return `name` with an absolute path. A relative path starts at `folder`, by default the current folder."""
    path, _, thing = name.rpartition(":")
    return f"{absolute_path(Path(path), folder)}:{thing}"


def from_file(name: str, sha256: str | None = None) -> Any:
    """Load an object from a Python file: `from_file("methods/mine.py:Mine")`. The file is run once for each content.

    With `sha256`, only the content with this hash is used.
    """
    if not names_file(name):
        raise Error(
            f"An object in a file must be named as path/file.py:Name, not {shown(name)}.", code="plugin-invalid"
        )
    place, _, thing = placed_file(name).rpartition(":")
    module = _module_of(name, sha256)
    if not hasattr(module, thing):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        raise Error(
            f"There is no {thing!r} in {place}; the file defines {', '.join(own) or 'nothing'}.", code="plugin-invalid"
        )
    return getattr(module, thing)


def data_hashes(name: str, sha256: str | None = None) -> dict[str, str]:
    """Return the SHA-256 of each data file that the Python file in `name` lists in `FILES`, by absolute path.

    Relative paths start at the folder of the Python file.
    """
    place, files = placed_file(name).rpartition(":")[0], getattr(_module_of(name, sha256), "FILES", [])
    if not isinstance(files, list | tuple) or not all(isinstance(file, str | Path) for file in files):
        raise Error(f"`FILES` in {place} must be a list of paths, not {shown(files)}.", code="plugin-invalid")
    hashes = {}
    for path in (absolute_path(Path(file), Path(place).parent) for file in files):
        check_regular(path, f"data file of {place}")
        hashes[str(path)] = _data_hash(path, path.stat().st_size, path.stat().st_mtime_ns)
    return hashes


@cache
def _data_hash(path: Path, size: int, modified: int) -> str:
    """Return the SHA-256 of a file, which is read again if its size or its modification time has changed."""
    return hashlib.sha256(read_regular(path, "data file")).hexdigest()


def file_not_allowed(kind: str, name: str, instead: str) -> Error:
    """Return the Error about a file that Python code names by a text; `instead` is the object to pass."""
    return Error(
        f"The {kind} {shown(name, 300)} is in a file, which only a command line or a suite may name: in Python, give "
        f'the {instead}, or `ostta.plugins.from_file("path/file.py:Name")`.',
        code="code-not-allowed",
    )


def file_hash(name: str) -> str:
    """Return the SHA-256 of the current content of the file in `name`."""
    return hashlib.sha256(source_of(name)).hexdigest()


def source_of(name: str, sha256: str | None = None) -> bytes:
    """Return the content of the file in `name`; with `sha256`, the content with this hash."""
    if sha256 in _SOURCES:
        return _SOURCES[sha256]
    place = placed_file(name).rpartition(":")[0]
    source = read_regular(Path(place), "Python file")
    require_unchanged(place, hashlib.sha256(source).hexdigest(), sha256)
    return source


def require_unchanged(path: str, now: str, planned: str | None) -> None:
    """Raise an Error if the SHA-256 of a file is not the planned one."""
    if planned not in (None, now):
        raise Error(
            f"The file {path} has changed since the run was planned: its SHA-256 was {planned}.", code="plugin-changed"
        )


def know_source(source: bytes) -> None:
    """Store the content of a file from another machine; `from_file` with its hash uses it instead of the file."""
    _SOURCES[hashlib.sha256(source).hexdigest()] = source


def file_name(thing: Any) -> str | None:
    """Return `file.py:Name` of an object from `from_file`, or None."""
    module = sys.modules.get(thing.__module__) if str(thing.__module__).startswith(_MODULE) else None
    return None if module is None or module.__file__ is None else f"{Path(module.__file__).name}:{thing.__qualname__}"


def _module_of(name: str, sha256: str | None) -> types.ModuleType:
    source = source_of(name, sha256)
    place, hashed = placed_file(name).rpartition(":")[0], hashlib.sha256(source).hexdigest()
    return _RUN.get((place, hashed)) or _run(Path(place), source, hashed)


def _run(path: Path, source: bytes, hashed: str) -> types.ModuleType:
    # The module name includes the path, so that two files with the same content are two modules.
    both = f"{path} {hashed}"
    module = types.ModuleType(f"{_MODULE}{hashlib.sha256(both.encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    # Dataclasses and type hints look up their module in `sys.modules`.
    sys.modules[module.__name__] = module
    try:
        with _foreign_code(f"The file {path} cannot be run"):
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except Error:
        del sys.modules[module.__name__]
        raise
    _RUN[str(path), hashed], _SOURCES[hashed] = module, source
    return module


@contextmanager
def _foreign_code(message: str) -> Iterator[None]:
    """Convert any exception of a plug-in, including `Error`, to an `Error` that names the exception type."""
    try:
        yield
    except Exception as problem:
        raise Error(f"{message}: {type(problem).__name__}: {reason_of(problem)}.", code="plugin-failed") from problem
