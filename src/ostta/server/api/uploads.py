"""Request bodies, read within limits of size, time and memory."""

from __future__ import annotations

import asyncio
import base64
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ...core.checks import shown
from ...io import parse_json
from ..engine import Sent
from ..problems import ClientGoneError, ProblemError, short_line
from ..settings import Limits
from .models import FeaturesInJson, ImagesInJson, parsed

# The parser logs every unexpected byte; the client gets one sentence instead.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

# Maximum number of form parts that are not images, and of unexpected JSON values.
MOST_OTHERS = 64
# Bytes of JSON that are parsed on the event loop; a longer text is parsed in a thread.
INLINE_JSON = 64 * 1024


class Bodies:
    """Reads bodies, and counts how many bytes of them are in memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request, most: int, seconds: float | None = None) -> AsyncIterator[bytes]:
        """Yield a whole body of at most `most` bytes, which count as held until the end of the block.

        `seconds` replaces the time limit of the server.
        """
        # The header may be missing or wrong.
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            raise _too_large(most)
        limit = self._limits.body_seconds if seconds is None else seconds
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(limit):
                    while await self._receive(request, body, most):
                        pass
            except TimeoutError:
                raise ProblemError(408, f"The body did not arrive within {limit:g} seconds.") from None
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _receive(self, request: Request, body: bytearray, most: int) -> bool:
        """Add the next part to `body`, and return whether there are more."""
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part: bytes = message.get("body", b"")
        if len(body) + len(part) > most:
            raise _too_large(most)
        if self.held + len(part) > self._limits.held:
            raise ProblemError(
                503, f"Uploads of {self._limits.held >> 20} MB are being read at this time: send again later.", 1
            )
        self.held += len(part)
        body += part
        return bool(message.get("more_body", False))


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"The body of this request is limited to {most:,} bytes.")


def _too_many(most: int) -> ProblemError:
    return ProblemError(413, f"There are more than {most} images in this request, or too many other values.")


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; a repeated name is refused."""
    try:
        content = parse_json(body.decode(), _once)
    except UnicodeDecodeError:
        raise ProblemError(400, "The body is not UTF-8 text.") from None
    except ValueError as problem:
        raise ProblemError(400, f"The body is not JSON: {short_line(str(problem), 200)}.") from None
    if not isinstance(content, dict):
        raise ProblemError(422, f"The body is a JSON object, not {shown(content)}.")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name is repeated")
    return content


async def sent_images(kind: str, body: bytes, most: int) -> tuple[list[Sent], bool]:
    """Return the images or features in a body of this content type, and whether the body is one image."""
    media = kind.partition(";")[0].strip().lower()
    if media == "application/json":
        # Counting is much faster than parsing millions of values.
        if body.count(b"[") + body.count(b"{") + body.count(b'"') // 2 > 2 * (most + 1) + MOST_OTHERS:
            raise _too_many(most)
        # A long text would delay other requests.
        images = await asyncio.to_thread(_in_json, body) if len(body) > INLINE_JSON else _in_json(body)
    elif media == "multipart/form-data":
        images = await _in_form(kind, body, most)
    elif media.startswith("image/") or media in ("", "application/octet-stream", "application/x-www-form-urlencoded"):
        # The last one is the default of curl --data-binary.
        return [body], True
    else:
        raise ProblemError(
            415, f"Images come as image/*, multipart/form-data or application/json, not as {shown(media)}."
        )
    if not images:
        raise ProblemError(422, "There is no image in this request.")
    if len(images) > most:
        raise ProblemError(413, f"There are {len(images)} images in this request, and the limit is {most}.")
    return images, False


def _in_json(body: bytes) -> list[Sent]:
    content = json_object(body)
    if "features" in content:
        return list(parsed(FeaturesInJson, content).features)
    return [_decoded(text) for text in parsed(ImagesInJson, content).images]


def _decoded(text: str) -> bytes:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        # Reported for this image only: the others may be valid.
        return b""


async def _in_form(kind: str, body: bytes, most: int) -> list[Sent]:
    """Return the files of a form in order; other fields are ignored."""
    boundary = parse_options_header(kind)[1].get(b"boundary", b"")
    if not boundary or len(boundary) > 200:
        raise ProblemError(400, "The content type of the form has no valid boundary.")
    # Parsing a part is slow, so a form with too many parts is refused first.
    if body.count(b"\r\n--" + boundary) > most + MOST_OTHERS:
        raise _too_many(most)
    if b"--" + boundary + b"--" not in body:
        raise ProblemError(400, "The form is incomplete: its last boundary is missing.")

    async def stream() -> AsyncGenerator[bytes]:
        yield body

    parser = _FormParser(Headers({"content-type": kind}), stream(), max_files=math.inf, max_part_size=len(body))
    try:
        form = await parser.parse()
    except MultiPartException as problem:
        raise ProblemError(400, f"The form cannot be read: {short_line(problem.message, 200)}") from None
    try:
        return [await part.read() for _, part in form.multi_items() if isinstance(part, UploadFile)]
    finally:
        await form.close()


class _FormParser(MultiPartParser):
    # Files stay in memory: what is uploaded is never written to a disk.
    spool_max_size = 0
