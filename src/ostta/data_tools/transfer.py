"""Resumable HTTP downloads into NAME.part, which is renamed when it is complete."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ..core.errors import reason_of
from ..core.types import Error

# Called with the bytes received and the total number of bytes.
Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = 60
# Maximum number of attempts. An interrupted download is resumed immediately if the last attempt received data.
_ATTEMPTS = 10


class _InterruptedError(Exception):
    """Raised if the connection ends early. The received bytes are in the .part file."""


class UnreachableError(Error):
    """Raised if a server does not provide the file. Another source may provide it."""

    code = "download-failed"


def fetch(url: str, target: Path, watch: Progress | None = None) -> None:
    """Download `url` to `target`.

    After a failure, `target` does not exist, and the received part is kept for the next attempt.
    """
    part = target.with_name(f"{target.name}.part")
    for _ in range(_ATTEMPTS):
        before = _size(part)
        try:
            _transfer(url, part, watch)
            break
        except _InterruptedError as broken:
            problem = broken
            if _size(part) <= before:
                raise UnreachableError(_sentence(url, part, str(broken))) from None
        except OSError as failure:
            raise _disk_problem(part, failure) from failure
    else:
        raise UnreachableError(_sentence(url, part, str(problem)))
    os.replace(part, target)
    _version_file(part).unlink(missing_ok=True)


def _transfer(url: str, part: Path, watch: Progress | None) -> None:
    """Download the rest of `part`. Return only when it is complete."""
    have = _size(part)
    request = _request(url, part, have)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as answer:
        with answer:
            if answer.code == 416 and have:
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                    return
                # The file on the server is now shorter than the received part, so start again.
                part.unlink()
                _transfer(url, part, watch)
                return
            raise UnreachableError(_sentence(url, part, f"the server answered {answer.code} {answer.reason}")) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as problem:
        raise _InterruptedError(_reason(problem)) from None
    with response:
        _receive(response, part, have if response.status == 206 else 0, watch)


def _request(url: str, part: Path, have: int) -> urllib.request.Request:
    """Return the request for the bytes after the first `have`."""
    headers = {"User-Agent": "ostta"}
    if have:
        headers["Range"] = f"bytes={have}-"
        version = _version_file(part)
        if version.is_file():
            # Without this header, the end of a newer version could be appended to the start of an older version.
            headers["If-Range"] = version.read_text(encoding="ascii")
    return urllib.request.Request(url, headers=headers)


def _receive(response: http.client.HTTPResponse, part: Path, start: int, watch: Progress | None) -> None:
    """Write the body of a response to `part`, after the first `start` bytes."""
    length = response.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    _check_room(part, 0 if total is None else total - start)
    etag, version = response.headers.get("ETag", ""), _version_file(part)
    if etag and not etag.startswith("W/"):
        version.write_text(etag, encoding="ascii")
    else:
        version.unlink(missing_ok=True)
    done = start
    with part.open("ab" if start else "wb") as file:
        while chunk := _read_chunk(response):
            file.write(chunk)
            done += len(chunk)
            if watch is not None:
                watch(done, total)
    if total is not None and done != total:
        raise _InterruptedError(f"the connection ended after {done:,} of {total:,} bytes")


def _read_chunk(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (http.client.HTTPException, OSError) as problem:
        raise _InterruptedError(_reason(problem)) from None


def _check_room(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise Error(
            f"'{part.parent}' has {free / 1e9:.1f} GB of free space, but {needed / 1e9:.1f} GB are needed: "
            "free some space and run this again.",
            code="disk-full",
        )


def _disk_problem(part: Path, problem: OSError) -> Error:
    if problem.errno == errno.ENOSPC:
        message = f"The disk of '{part.parent}' is full; the part received is kept: free some space and run this again."
        return Error(message, code="disk-full")
    return Error(f"'{part}' could not be written ({reason_of(problem)}).", code="file-not-written")


def _sentence(url: str, part: Path, reason: str) -> str:
    kept = f"; {_size(part):,} bytes are kept, and running this again resumes from there" if _size(part) else ""
    return f"{url} could not be downloaded: {reason}{kept}."


def _reason(problem: Exception) -> str:
    inner = problem.reason if isinstance(problem, urllib.error.URLError) else problem
    return reason_of(inner) if isinstance(inner, Exception) else str(inner)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _version_file(part: Path) -> Path:
    """Return the path of the file with the entity tag of the version that `part` belongs to."""
    return part.with_name(f"{part.name}.etag")
