"""Fetching one file over HTTP: into NAME.part, going on where an earlier try broke off, and under its own name only when whole."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ...core.types import Error

Watch = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = 60
# A broken connection is taken up again at once, as long as each try brings something.
_TRIES = 10


class _BrokenError(Exception):
    """The connection ended early; what arrived is in the .part file."""


class UnreachableError(Error):
    """The server did not answer, or not with the file: another source may."""


def fetch(url: str, target: Path, watch: Watch | None = None) -> None:
    """Bring `url` to `target`. On any failure `target` is not there and the part that arrived stays for the next try."""
    part = target.with_name(f"{target.name}.part")
    for _ in range(_TRIES):
        before = _size(part)
        try:
            _transfer(url, part, watch)
            break
        except _BrokenError as broken:
            problem = broken
            if _size(part) <= before:
                raise UnreachableError(_sentence(url, part, str(broken))) from None
        except OSError as failure:
            raise _disk_problem(part, failure) from failure
    else:
        raise UnreachableError(_sentence(url, part, str(problem)))
    os.replace(part, target)
    _mark_of(part).unlink(missing_ok=True)


def _transfer(url: str, part: Path, watch: Watch | None) -> None:
    """Fetch what is missing of `part`; returns only when it is whole."""
    have = _size(part)
    mark = _mark_of(part)
    headers = {"User-Agent": "ostta"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if mark.is_file():
            # Without it, the rest of a newer file could be put behind the start of an older one.
            headers["If-Range"] = mark.read_text(encoding="ascii")
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as answer:
        with answer:
            if answer.code == 416 and have:
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                    return
                # The file became shorter than the part of it that is here: begin again.
                part.unlink()
                return _transfer(url, part, watch)
            raise UnreachableError(_sentence(url, part, f"the server answered {answer.code} {answer.reason}")) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as problem:
        raise _BrokenError(_reason(problem)) from None
    with response:
        start = have if response.status == 206 else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        _check_room(part, 0 if total is None else total - start)
        etag = response.headers.get("ETag", "")
        if etag and not etag.startswith("W/"):
            mark.write_text(etag, encoding="ascii")
        else:
            mark.unlink(missing_ok=True)
        done = start
        with part.open("ab" if start else "wb") as file:
            while True:
                try:
                    chunk = response.read(_CHUNK)
                except (http.client.HTTPException, OSError) as problem:
                    raise _BrokenError(_reason(problem)) from None
                if not chunk:
                    break
                file.write(chunk)
                done += len(chunk)
                if watch is not None:
                    watch(done, total)
    if total is not None and done != total:
        raise _BrokenError(f"the connection ended after {done:,} of {total:,} bytes")


def _check_room(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise Error(
            f"'{part.parent}' has room for {free / 1e9:.1f} GB, but {needed / 1e9:.1f} GB are still to come: "
            "make room and run this again."
        )


def _disk_problem(part: Path, problem: OSError) -> Error:
    if problem.errno == errno.ENOSPC:
        return Error(
            f"The disk of '{part.parent}' is full; the part that arrived is kept: make room and run this again."
        )
    return Error(f"'{part}' could not be written ({problem.strerror or problem}).")


def _sentence(url: str, part: Path, reason: str) -> str:
    kept = f"; {_size(part):,} bytes are kept, and running this again goes on from there" if _size(part) else ""
    return f"{url} could not be fetched: {reason}{kept}."


def _reason(problem: Exception) -> str:
    inner = problem.reason if isinstance(problem, urllib.error.URLError) else problem
    return (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__).rstrip(".")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _mark_of(part: Path) -> Path:
    """Beside the part, the server's mark of the version it is a part of."""
    return part.with_name(f"{part.name}.etag")
