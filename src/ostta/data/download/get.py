"""Getting a data set: fetch its files, compare their checksums, unpack them, and write down what was fetched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ...core.types import Error
from ...io import write_atomically
from .. import corruptions
from ..catalogue import CATALOGUE
from ..from_catalogue import PUBLISHED_NAMES
from ..names import Name, parse_name
from .addresses import PUBLISHED_SOURCES, SOURCES, Download, Source
from .transfer import UnreachableError, fetch
from .unpack import unpack

Watch = Callable[[str, int, int | None], None]

RECORD = "downloads.json"
# Where files are while they are on their way, below ROOT.
_ON_THE_WAY = "downloads"


def get_dataset(name: str, root: Path, *, corruption: str = "snow", watch: Watch | None = None) -> list[Path]:
    """Fetch what `name` needs into `root` and say which paths it made; what is there already is left alone.

    `corruption` matters to ImageNet-C only, whose archives have a group of corruptions each.
    """
    sources = sources_of(parse_name(name), name, corruption)
    if any(all(_there(download, root) for download in source) for source in sources):
        return []
    try:
        (root / _ON_THE_WAY).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Error(f"The folder '{root / _ON_THE_WAY}' cannot be made ({problem.strerror}).") from problem
    problems = []
    for source in sources:
        try:
            return [path for download in source for path in _get(download, root, watch)]
        except UnreachableError as problem:
            problems.append(str(problem))
    raise Error(" ".join(problems))


def sources_of(parsed: Name, name: str, corruption: str) -> tuple[Source, ...]:
    """The sources of a set, or an Error that says how to come by it."""
    if parsed.kind != "known":
        raise Error(f"'{name}' needs no download: only the sets that are known by name can be fetched.")
    entry = CATALOGUE[parsed.base]
    default = next(iter(entry.splits))
    if parsed.corrupted and parsed.base in PUBLISHED_SOURCES and parsed.split in ("", default):
        corruptions.checked(corruption, 5)
        published = PUBLISHED_SOURCES[parsed.base]
        return (published.get("") or published[PUBLISHED_NAMES.get(corruption, corruption)],)
    if parsed.base not in SOURCES:
        raise Error(f"'{parsed.base}' cannot be fetched by a program. {entry.instructions(parsed.split)}")
    return SOURCES[parsed.base][parsed.split or default]


def _get(download: Download, root: Path, watch: Watch | None) -> list[Path]:
    if _there(download, root):
        return []
    made = [root / path for path in download.makes]
    arrived = root / _ON_THE_WAY / download.file
    if not arrived.is_file():
        fetch(download.url, arrived, None if watch is None else lambda done, total: watch(download.file, done, total))
    _check(download, arrived, root)
    if download.form == "file":
        _place(arrived, made[0])
    else:
        unpack(arrived, download.form, root, download.makes)
        arrived.unlink()
    return made


def _place(arrived: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        arrived.replace(target)
    except OSError as problem:
        raise Error(f"'{target}' cannot be made ({problem.strerror}); the file is kept at '{arrived}'.") from problem


def _there(download: Download, root: Path) -> bool:
    return all((root / path).exists() for path in download.makes)


def _check(download: Download, path: Path, root: Path) -> None:
    """Compare with the stated checksum and with the first download's, and write this one down if it is the first."""
    md5, sha256 = _digests(path)
    record = _record(root)
    before = record.get(download.url, {}).get("sha256", sha256)
    if download.md5 and md5 != download.md5:
        problem = f"its MD5 is {md5}, but {download.stated_by} states {download.md5}"
    elif before != sha256:
        problem = (
            f"its SHA-256 is {sha256}, but the first download, in {root / RECORD}, had {before}; "
            "to accept a new version, take its entry out of there"
        )
    else:
        entry = {"bytes": path.stat().st_size, "md5": md5, "sha256": sha256}
        content = json.dumps({**record, download.url: entry}, indent=2, sort_keys=True)
        write_atomically(root / RECORD, f"{content}\n".encode())
        return
    path.unlink()
    raise Error(f"What came from {download.url} is not the right file and was deleted: {problem}.")


def _digests(path: Path) -> tuple[str, str]:
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            md5.update(chunk)
            sha256.update(chunk)
    return md5.hexdigest(), sha256.hexdigest()


def _record(root: Path) -> Mapping[str, Mapping[str, str]]:
    path = root / RECORD
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise Error(f"The record of downloads '{path}' cannot be read: {problem}.") from problem
    if not isinstance(record, dict) or not all(isinstance(entry, dict) for entry in record.values()):
        raise Error(f"The record of downloads '{path}' must be a JSON object from addresses to what came from them.")
    return record
