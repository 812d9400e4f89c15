"""Code from outside the package: what installed packages register, and files that a person names.

A package registers by entry points of the groups `ostta.methods`, `ostta.scores`, `ostta.identifiers`, `ostta.backbones`,
`ostta.datasets` and `ostta.evaluation.measures`. A person may also name a file, `path/file.py:Name`, on the command line, in a suite or in
Python: naming it runs it. What a state file, a result file or anybody else says goes through `registered`, which runs no file.
"""

from __future__ import annotations

import hashlib
import sys
import types
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from ..core.checks import shown
from ..core.types import Error
from ..io import absolute_path, read_regular

Kind = Literal["method", "score", "identifier", "backbone", "dataset", "measure"]
_MODULE = "ostta_file_"
# What was run, by its hash: the module, and its source for workers that do not have the file.
_RUN: dict[tuple[str, str], types.ModuleType] = {}
_SOURCES: dict[str, bytes] = {}


# --- entry points -------------------------------------------------------------------------------------------------------
@cache
def _entry_points(kind: Kind) -> dict[str, metadata.EntryPoint]:
    """By name; of two packages that register the same name, the first one has it."""
    found: dict[str, metadata.EntryPoint] = {}
    for each in metadata.entry_points(group=f"ostta.{kind}s"):
        found.setdefault(each.name, each)
    return found


def registered_names(kind: Kind) -> list[str]:
    """The names that installed packages have registered."""
    return list(_entry_points(kind))


def registered(kind: Kind, name: str) -> Any:
    """What a package has registered under `name`, which is one of `registered_names`."""
    entry = _entry_points(kind)[name]
    try:
        return entry.load()
    except Exception as problem:  # somebody else's code: anything may come
        package = "an installed package" if entry.dist is None else f"the package {entry.dist.name}"
        raise Error(f"The {kind} {name!r} of {package} cannot be loaded: {_said(problem)}") from problem


def registered_as(kind: Kind, thing: type[Any]) -> str | None:
    """The name that a class is registered by, if it is."""
    place = f"{thing.__module__}:{thing.__qualname__}"
    return next((name for name, each in _entry_points(kind).items() if each.value == place), None)


def package(kind: Kind, name: str) -> str:
    """The package that registered `name`, with its version, such as "birds 1.0"; empty where nobody did, or nobody knows."""
    entry = _entry_points(kind).get(name)
    return "" if entry is None or entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


# --- files --------------------------------------------------------------------------------------------------------------
def names_file(name: object) -> bool:
    """Whether `name` is of the form path/file.py:Name.

    >>> names_file("mine.py:Mine"), names_file("rosita"), names_file("folder:mine.py")
    (True, False, False)
    """
    if not isinstance(name, str):
        return False
    path, _, thing = name.rpartition(":")
    return path.endswith(".py") and thing.isidentifier()


def placed_file(name: str, folder: Path | None = None) -> str:
    """`name` with its path from the root; a relative one is meant from `folder`, or from the current one."""
    path, _, thing = name.rpartition(":")
    return f"{absolute_path(Path(path), folder)}:{thing}"


def from_file(name: str, sha256: str | None = None) -> Any:
    """What is called so in a file: `from_file("methods/mine.py:Mine")`. This runs the file, once for each content it has.

    With `sha256`, only the content with that hash: another one is an Error.
    """
    if not names_file(name):
        raise Error(f"A file and what is meant in it are named as path/file.py:Name, not {shown(name)}.")
    place, _, thing = placed_file(name).rpartition(":")
    source = source_of(name, sha256)
    hashed = hashlib.sha256(source).hexdigest()
    module = _RUN.get((place, hashed)) or _run(Path(place), source, hashed)
    if not hasattr(module, thing):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        raise Error(f"There is no {thing!r} in {place}; it has {', '.join(own) or 'nothing of its own'}.")
    return getattr(module, thing)


def file_hash(name: str) -> str:
    """The SHA-256 of the file that `name` is in, as it is now."""
    return hashlib.sha256(source_of(name)).hexdigest()


def source_of(name: str, sha256: str | None = None) -> bytes:
    """The content of the file that `name` is in; with `sha256`, the content of that hash."""
    if sha256 in _SOURCES:
        return _SOURCES[sha256]
    place = placed_file(name).rpartition(":")[0]
    source = read_regular(Path(place), "Python file")
    if sha256 is not None and hashlib.sha256(source).hexdigest() != sha256:
        raise Error(f"The file {place} is not what it was when this run was asked for: its SHA-256 was {sha256}.")
    return source


def know_source(source: bytes) -> None:
    """Take the content of a file that came from elsewhere: `from_file` with its hash uses it in place of the file."""
    _SOURCES[hashlib.sha256(source).hexdigest()] = source


def file_name(thing: Any) -> str | None:
    """`file.py:Name` of something that came by `from_file`, without its folder; None for anything else."""
    module = sys.modules.get(thing.__module__) if str(thing.__module__).startswith(_MODULE) else None
    return None if module is None or module.__file__ is None else f"{Path(module.__file__).name}:{thing.__qualname__}"


def _run(path: Path, source: bytes, hashed: str) -> types.ModuleType:
    # The name has the path too: two files of one content are two modules.
    both = f"{path} {hashed}"
    module = types.ModuleType(f"{_MODULE}{hashlib.sha256(both.encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    # Dataclasses and type hints look their module up.
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as problem:  # as above
        del sys.modules[module.__name__]
        raise Error(f"The file {path} cannot be run: {_said(problem)}") from problem
    _RUN[str(path), hashed], _SOURCES[hashed] = module, source
    return module


def _said(problem: Exception) -> str:
    words = " ".join(str(problem).split())[:200].rstrip(".!: ")
    return f"{type(problem).__name__}{': ' if words else ''}{words}."
