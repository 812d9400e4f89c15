"""http(s) addresses: an image, a stream of JPEG images, or a video. What is read is limited in bytes, in time and in redirects."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ..core.checks import one_line
from ..core.types import Error
from .addresses import HTTP, check_address, decoded, scheme_of, without_password
from .decoding import FORMATS, PATIENCE, opened, picture, problems, require_av, said
from .item import Item, frame_item
from .live import Live, Shot
from .mjpeg import images_of
from .source import Source

# Bytes of one image.
LARGEST = 64 * 1024 * 1024
# Seconds that a whole image may take.
LONGEST = 60.0
REDIRECTS = 5
PLAYLISTS = ("application/vnd.apple.mpegurl", "application/x-mpegurl", "audio/mpegurl", "application/dash+xml")
# What FFmpeg may open for an address: videos, playlists and the formats of their sound, but no files of this machine.
FAR_ONLY = {
    "format_whitelist": f"{FORMATS},hls,dash,aac,ac3,eac3,mp3,webvtt",
    "protocol_whitelist": "http,https,httpproxy,tcp,tls,crypto",
}


def web(address: str, every: int, retries: int | None) -> Source:
    """What the address gives: its headers say which kind of thing that is."""
    check_address(address)
    name = without_password(address)
    with _answer(address) as response:
        kind = response.headers.get_content_type()
        endless = response.headers.get("Content-Length") is None
    if kind.startswith("image/"):
        return WebImage(address)
    if kind == "multipart/x-mixed-replace":
        return Live(name, partial(_jpegs, address), every, retries)
    if kind.startswith(("text/", "application/json")):
        raise Error(f"{name} gives {kind[:80]}, which is neither an image nor a video.")
    require_av()
    if kind in PLAYLISTS or endless:
        return Live(name, partial(decoded, address, name, None, FAR_ONLY), every, retries)
    return WebVideo(address, every)


class WebImage(Source):
    """The one image at an address."""

    def __init__(self, address: str) -> None:
        super().__init__(without_password(address))
        self._address = address

    def __iter__(self) -> Iterator[Item]:
        with _answer(self._address) as response:
            content = _limited(response, self.name)
        yield Item(content, self.name, "", time.time())


class WebVideo(Source):
    """A video at an address: every frame, one in `every`, from the beginning."""

    def __init__(self, address: str, every: int) -> None:
        super().__init__(without_password(address))
        self._address, self._every = address, every

    def __iter__(self) -> Iterator[Item]:
        number = -1
        with opened(self._address, self.name, far=True, options=FAR_ONLY) as (container, stream):
            try:
                for number, frame in enumerate(container.decode(stream)):
                    if number % self._every == 0:
                        yield frame_item(partial(picture, frame), f"{self.name}#{number}", "", frame.time, number)
            except problems() as problem:
                self.tell("lost", f"{self.name} breaks off after {number + 1} frames: {said(problem)}.")
        if number < 0:
            raise Error(f"{self.name} has no frame that can be decoded.")


class _FewRedirects(urllib.request.HTTPRedirectHandler):
    max_redirections = max_repeats = REDIRECTS

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if scheme_of(newurl) not in HTTP:
            raise urllib.error.URLError("it leads to something else than http")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _answer(address: str) -> Iterator[http.client.HTTPResponse]:
    """The answer of the server at `address`, or one sentence."""
    parts, name = urlsplit(address), without_password(address)
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    if parts.username is not None:
        passwords.add_password(None, plain, unquote(parts.username), unquote(parts.password or ""))
    opener = urllib.request.build_opener(
        _FewRedirects, urllib.request.HTTPBasicAuthHandler(passwords), urllib.request.HTTPDigestAuthHandler(passwords)
    )
    try:
        with opener.open(plain, timeout=PATIENCE) as response:
            yield response
    except urllib.error.HTTPError as problem:
        problem.close()
        if 300 <= problem.code < 400:
            raise Error(f"{name} leads on to more than {REDIRECTS} other addresses, or in a circle.") from None
        raise Error(f"{name} cannot be read: the server says {problem.code} {one_line(problem.reason)[:80]}.") from None
    except urllib.error.URLError as problem:
        raise Error(f"{name} cannot be reached: {_reason(problem.reason)}.") from None
    # A stream that breaks off is met inside the block.
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise Error(f"{name} cannot be read: {_reason(problem)}.") from None


def _reason(problem: object) -> str:
    if isinstance(problem, TimeoutError):
        return f"no answer within {PATIENCE:g} seconds"
    return str(getattr(problem, "strerror", None) or problem or type(problem).__name__).rstrip(".")


def _limited(response: http.client.HTTPResponse, name: str) -> bytes:
    """The whole content, which must come in time and be of a usual size."""
    content, began = bytearray(), time.monotonic()
    while piece := response.read1(1 << 16):
        content += piece
        if len(content) > LARGEST:
            raise Error(f"The image at {name} has more than {LARGEST >> 20} megabytes.")
        if time.monotonic() - began > LONGEST:
            raise Error(f"The image at {name} did not come within {LONGEST:g} seconds.")
    return bytes(content)


def _jpegs(address: str) -> Iterator[Shot]:
    """The images of a stream of them."""
    with _answer(address) as response:
        boundary = str(response.headers.get_param("boundary") or "").strip("-")
        if not boundary:
            raise Error(f"{without_password(address)} does not say where its images end: its type has no boundary.")
        for content in images_of(response, boundary.encode(), LARGEST):
            yield partial(bytes, content)
