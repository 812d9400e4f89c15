"""Cameras, and rtsp and http(s) addresses of images, JPEG streams or videos.

Reads are limited in size, time and number of redirects.
"""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ..core.checks import one_line
from ..core.errors import reason_of
from ..core.types import Error
from .decoding import FORMATS, TIMEOUT_SECONDS, frame_pixels, open_video, require_av, video_errors, video_reason
from .live import FrameDecoder, Live
from .source import Item, Source, frame_item, unreadable

RTSP = ("rtsp", "rtsps")
HTTP = ("http", "https")
# Maximum size of one image in bytes, and time limit of its download in seconds.
MAX_BYTES, MAX_SECONDS = 64 * 1024 * 1024, 60.0
REDIRECTS = 5
# Maximum length of a header line in bytes, and maximum number of header lines per image of a JPEG stream.
LONGEST_LINE, MOST_LINES = 8_192, 100
PLAYLISTS = ("application/vnd.apple.mpegurl", "application/x-mpegurl", "audio/mpegurl", "application/dash+xml")
# Restrict FFmpeg to remote videos and playlists with their audio formats, without access to local files.
REMOTE_ONLY = {
    "format_whitelist": f"{FORMATS},hls,dash,aac,ac3,eac3,mp3,webvtt",
    "protocol_whitelist": "http,https,httpproxy,tcp,tls,crypto",
}


def scheme_of(source: str) -> str | None:
    """Return the scheme before "://" in lower case, or None if there is none."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    return None if match is None else match[1].lower()


def without_password(address: str) -> str:
    """Return an address with its password hidden.

    >>> without_password("rtsp://me:secret@10.0.0.7/door")
    'rtsp://me:***@10.0.0.7/door'
    """
    return re.sub(r"^([^/]*//[^/@:]*):[^/]*@", r"\1:***@", address)


def check_address(address: str) -> None:
    """Raise an Error if an address has no host."""
    try:
        host, _ = urlsplit(address).hostname, urlsplit(address).port
    except ValueError:
        host = None
    if not host or re.search(r"[\s\x00-\x1f]", address):
        message = f"'{without_password(address)}' is not an address: give one such as rtsp://10.0.0.7:554/door."
        raise Error(message, code="source-unknown")


# --- live sources -----------------------------------------------------------------------------------------------------
def camera(number: int, every: int, retries: int | None) -> Source:
    """Return a source for the Video4Linux camera /dev/video<number>."""
    require_av()
    device = Path(f"/dev/video{number}")
    if not device.exists():
        cameras = sorted(int(path.name[5:]) for path in Path("/dev").glob("video*") if path.name[5:].isdigit())
        others = f"; there are {', '.join(map(str, cameras))}" if cameras else ", and no other camera"
        raise Error(f"There is no camera {number}{others}.", code="source-unknown")
    name = f"camera {number}"
    return Live(name, partial(_decoded, str(device), name, "v4l2"), every, retries)


def rtsp(address: str, every: int, retries: int | None) -> Source:
    """Return a source for an RTSP stream over TCP, which passes firewalls and does not lose packets."""
    require_av()
    check_address(address)
    name = without_password(address)
    options = {"rtsp_transport": "tcp"}
    return Live(name, partial(_decoded, address, name, None, options), every, retries)


def _decoded(
    where: str, name: str, form: str | None = None, options: Mapping[str, str] | None = None
) -> Iterator[FrameDecoder]:
    """Connect and yield the frames."""
    with open_video(where, name, form=form, remote=True, options=options) as (container, stream):
        try:
            for frame in container.decode(stream):
                yield partial(frame_pixels, frame)
                del frame
        except video_errors() as problem:
            raise unreadable(f"{name} can no longer be read: {video_reason(problem)}.") from None


# --- http(s) ----------------------------------------------------------------------------------------------------------
def web(address: str, every: int, retries: int | None) -> Source:
    """Return the source at an address. The response headers determine its type."""
    check_address(address)
    name = without_password(address)
    with _response(address) as response:
        kind = response.headers.get_content_type()
        endless = response.headers.get("Content-Length") is None
    if kind.startswith("image/"):
        return WebImage(address)
    if kind == "multipart/x-mixed-replace":
        return Live(name, partial(_jpegs, address), every, retries)
    if kind.startswith(("text/", "application/json")):
        raise unreadable(f"{name} has the type {kind[:80]}: it must be an image or a video.")
    require_av()
    if kind in PLAYLISTS or endless:
        return Live(name, partial(_decoded, address, name, None, REMOTE_ONLY), every, retries)
    return WebVideo(address, every)


class WebImage(Source):
    """The image at an address."""

    def __init__(self, address: str) -> None:
        super().__init__(without_password(address))
        self._address = address

    def __iter__(self) -> Iterator[Item]:
        with _response(self._address) as response:
            content = _limited(response, self.name)
        yield Item(content, self.name, "", time.time())


class WebVideo(Source):
    """The video at an address: one frame in `every`, from the start."""

    def __init__(self, address: str, every: int) -> None:
        super().__init__(without_password(address))
        self._address, self._every = address, every

    def __iter__(self) -> Iterator[Item]:
        number = -1
        with open_video(self._address, self.name, remote=True, options=REMOTE_ONLY) as (container, stream):
            try:
                for number, frame in enumerate(container.decode(stream)):
                    if number % self._every == 0:
                        yield frame_item(partial(frame_pixels, frame), f"{self.name}#{number}", "", frame.time, number)
            except video_errors() as problem:
                self.add_event("lost", f"{self.name} ended after {number + 1} frames: {video_reason(problem)}.")
        if number < 0:
            raise unreadable(f"{self.name} has no frame that can be decoded.")


class _FewRedirects(urllib.request.HTTPRedirectHandler):
    max_redirections = max_repeats = REDIRECTS

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if scheme_of(newurl) not in HTTP:
            raise urllib.error.URLError("it redirects to an address that is not http")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _response(address: str) -> Iterator[http.client.HTTPResponse]:
    """Open an address and yield the response of the server."""
    parts, name = urlsplit(address), without_password(address)
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    if parts.username is not None:
        passwords.add_password(None, plain, unquote(parts.username), unquote(parts.password or ""))
    opener = urllib.request.build_opener(
        _FewRedirects, urllib.request.HTTPBasicAuthHandler(passwords), urllib.request.HTTPDigestAuthHandler(passwords)
    )
    try:
        with opener.open(plain, timeout=TIMEOUT_SECONDS) as response:
            yield response
    except urllib.error.HTTPError as problem:
        problem.close()
        if 300 <= problem.code < 400:
            reason = f"it redirects more than {REDIRECTS} times, or in a circle"
        else:
            reason = f"the server answered {problem.code} {one_line(problem.reason)[:80]}"
        raise unreadable(f"{name} cannot be read: {reason}.") from None
    except urllib.error.URLError as problem:
        raise unreadable(f"{name} cannot be reached: {_reason(problem.reason)}.") from None
    # A stream that ends early raises an exception inside the `with` block of the caller.
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise unreadable(f"{name} cannot be read: {_reason(problem)}.") from None


def _reason(problem: object) -> str:
    if isinstance(problem, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} seconds"
    return reason_of(problem) if isinstance(problem, Exception) else str(problem)


def _limited(response: http.client.HTTPResponse, name: str) -> bytes:
    """Read the complete content within the size and time limits."""
    content, start = bytearray(), time.monotonic()
    while chunk := response.read1(1 << 16):
        content += chunk
        if len(content) > MAX_BYTES:
            raise unreadable(f"The image at {name} has more than {MAX_BYTES >> 20} megabytes.")
        if time.monotonic() - start > MAX_SECONDS:
            raise unreadable(f"The image at {name} was not received within {MAX_SECONDS:g} seconds.")
    return bytes(content)


# --- streams of JPEG images -------------------------------------------------------------------------------------------
def _jpegs(address: str) -> Iterator[FrameDecoder]:
    with _response(address) as response:
        boundary = str(response.headers.get_param("boundary") or "").strip("-")
        if not boundary:
            raise unreadable(f"{without_password(address)} cannot be read: its content type has no boundary.")
        for content in multipart_images(response, boundary.encode(), MAX_BYTES):
            yield partial(bytes, content)


def multipart_images(stream: IO[bytes], boundary: bytes, largest: int) -> Iterator[bytes]:
    """Yield the images of a multipart/x-mixed-replace response ("MJPEG"), each of at most `largest` bytes.

    >>> import io
    >>> first = b"--x\\r\\nContent-Type: image/jpeg\\r\\nContent-Length: 3\\r\\n\\r\\nONE\\r\\n"
    >>> body = first + b"--x\\r\\n\\r\\nTWO\\r\\n--x--\\r\\n"
    >>> list(multipart_images(io.BytesIO(body), b"x", 100))
    [b'ONE', b'TWO']
    """
    # Some servers declare the boundary with its dashes, others without.
    boundary = boundary.strip(b"-")
    before = _until(stream, boundary, largest)
    while before is not None:
        headers = _headers(stream)
        length = headers.get("content-length", "")
        if length.isdecimal():
            if int(length) > largest:
                raise _too_large(largest)
            content: bytes | None = stream.read(int(length))
            before = _until(stream, boundary, largest)
        else:
            content = before = _until(stream, boundary, largest)
        # Without a following boundary, the image is incomplete.
        if content and before is not None and headers.get("content-type", "image/").startswith("image/"):
            yield content


def _until(stream: IO[bytes], boundary: bytes, largest: int) -> bytes | None:
    """Return the bytes before the next boundary, or None if there is none."""
    content = bytearray()
    while line := stream.readline(LONGEST_LINE):
        if line.startswith(b"--") and line.strip().strip(b"-") == boundary:
            return bytes(content).removesuffix(b"\n").removesuffix(b"\r")
        content += line
        if len(content) > largest:
            raise _too_large(largest)
    return None


def _headers(stream: IO[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MOST_LINES):
        name, _, value = stream.readline(LONGEST_LINE).decode("latin-1").strip().partition(":")
        if not name:
            return headers
        headers[name.strip().lower()] = value.strip().lower()
    raise unreadable(f"A part of the stream has more than {MOST_LINES} header lines.")


def _too_large(largest: int) -> Error:
    return unreadable(f"An image of the stream has more than {largest >> 20} megabytes.")
