"""Download the files of a data set into the data folder and verify their checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ..core.errors import translate_errors
from ..core.types import Error
from ..data.by_name import PUBLISHED_NAMES
from ..data.catalogue import CATALOGUE
from ..data.corruptions import checked
from ..data.names import Name, parse_name
from ..io import make_folder, read_regular, write_atomically
from .addresses import PUBLISHED_SOURCES, SOURCES, Download, Source
from .transfer import UnreachableError, fetch
from .unpack import unpack

# Called with a file name, the bytes received and the total number of bytes.
Progress = Callable[[str, int, int | None], None]

RECORD = "downloads.json"
# Folder of unfinished downloads below ROOT.
_INCOMING = "downloads"


def get_dataset(name: str, root: Path, *, corruption: str = "snow", watch: Progress | None = None) -> list[Path]:
    """Download the missing files of the data set `name` into `root` and return their paths.

    `corruption` selects the archive of ImageNet-C and has no effect on other data sets.
    """
    sources = sources_of(parse_name(name), name, corruption)
    if any(all(_exists(download, root) for download in source) for source in sources):
        return []
    make_folder(root / _INCOMING)
    problems = []
    for source in sources:
        try:
            return [path for download in source for path in _get(download, root, watch)]
        except UnreachableError as problem:
            problems.append(str(problem))
    raise Error(" ".join(problems), code="download-failed")


def sources_of(parsed: Name, name: str, corruption: str) -> tuple[Source, ...]:
    """Return the alternative sources of a data set."""
    if parsed.kind != "known":
        message = f"'{name}' needs no download: only the sets of the catalogue can be downloaded."
        raise Error(message, code="download-unavailable")
    entry = CATALOGUE[parsed.base]
    if parsed.published is not None:
        checked(corruption, 5)
        published = PUBLISHED_SOURCES[parsed.base]
        return (published.get("") or published[PUBLISHED_NAMES.get(corruption, corruption)],)
    if parsed.base not in SOURCES:
        message = f"'{parsed.base}' cannot be downloaded by a program. {entry.instructions(parsed.split)}"
        raise Error(message, code="download-unavailable")
    return SOURCES[parsed.base][parsed.split or entry.default_split]


def _get(download: Download, root: Path, watch: Progress | None) -> list[Path]:
    if _exists(download, root):
        return []
    targets = [root / path for path in download.makes]
    file = root / _INCOMING / download.file
    if not file.is_file():
        fetch(download.url, file, None if watch is None else lambda done, total: watch(download.file, done, total))
    _check(download, file, root)
    if download.form == "file":
        message = f"'{targets[0]}' cannot be created ({{reason}}); the file is kept at '{file}'."
        with translate_errors("file-not-written", message, OSError):
            targets[0].parent.mkdir(parents=True, exist_ok=True)
            file.replace(targets[0])
    else:
        unpack(file, download.form, root, download.makes)
        file.unlink()
    return targets


def _exists(download: Download, root: Path) -> bool:
    return all((root / path).exists() for path in download.makes)


def _check(download: Download, path: Path, root: Path) -> None:
    """Compare a file with the published and the recorded checksum, and record the checksums of a new file."""
    md5, sha256 = _digests(path)
    record = _record(root)
    before = record.get(download.url, {}).get("sha256", sha256)
    if download.md5 and md5 != download.md5:
        problem = f"its MD5 is {md5}, but {download.stated_by} states {download.md5}"
    elif before != sha256:
        problem = (
            f"its SHA-256 is {sha256}, but the first download, in {root / RECORD}, had {before}; "
            "to accept a new version, remove its entry from that file"
        )
    else:
        entry = {"bytes": path.stat().st_size, "md5": md5, "sha256": sha256}
        content = json.dumps({**record, download.url: entry}, indent=2, sort_keys=True)
        write_atomically(root / RECORD, f"{content}\n".encode())
        return
    path.unlink()
    message = f"The file from {download.url} is not the expected one and was deleted: {problem}."
    raise Error(message, code="download-wrong-file")


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
    content = read_regular(path, "record of downloads")
    code, message = "download-record-invalid", f"The record of downloads '{path}' cannot be read: {{reason}}."
    with translate_errors(code, message, ValueError):
        record = json.loads(content)
    if not isinstance(record, dict) or not all(isinstance(entry, dict) for entry in record.values()):
        raise Error(f"The record of downloads '{path}' must be a JSON object from addresses to checksums.", code=code)
    return record
