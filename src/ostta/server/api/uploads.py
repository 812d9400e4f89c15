"""Request bodies, read within limits of size, time and memory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header

from ...core.checks import shown
from ...io import parse_json
from ..engine import Sent
from ..problems import ClientGoneError, ProblemError, one_line
from ..settings import Limits

# The parser logs every unexpected byte; the client gets one sentence instead.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
# Maximum number of values of a feature.
MOST_FEATURES = 65536
# Maximum number of form parts that are not images, and of unexpected JSON values.
MOST_OTHERS = 64
# Bytes of JSON that are parsed on the event loop; a longer text is parsed in a thread.
INLINE_JSON = 64 * 1024


class Bodies:
    """Reads bodies, and counts how many bytes of them are in memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held = 0

    @contextmanager
    def body(self) -> Iterator[Body]:
        """Yield a body to be read; its bytes are counted until the end of the block."""
        body = Body(self)
        try:
            yield body
        finally:
            self.held -= body.size

    def take(self, size: int) -> None:
        if self.held + size > self._limits.held:
            raise ProblemError(
                503, f"Uploads of {self._limits.held >> 20} MB are being read at this time: send again later.", 1
            )
        self.held += size

    @property
    def seconds(self) -> float:
        return self._limits.body_seconds


class Body:
    """One request body."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size = 0

    async def read(
        self, receive: Receive, most: int, announced: str | None = None, seconds: float | None = None
    ) -> bytes:
        """Read the whole body.

        `announced` is the Content-Length header, which may be missing or wrong. `seconds` replaces the server's time limit.
        """
        if announced is not None and announced.isdecimal() and int(announced) > most:
            raise too_large(most)
        limit = self._bodies.seconds if seconds is None else seconds
        parts: list[bytes] = []
        more = True
        try:
            async with asyncio.timeout(limit):
                while more:
                    message = await receive()
                    parts.append(self._counted(message, most))
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ProblemError(408, f"The body did not arrive within {limit:g} seconds.") from None
        return b"".join(parts)

    def _counted(self, message: MutableMapping[str, Any], most: int) -> bytes:
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part: bytes = message.get("body", b"")
        if self.size + len(part) > most:
            raise too_large(most)
        self._bodies.take(len(part))
        self.size += len(part)
        return part


def too_large(most: int) -> ProblemError:
    """The problem with a body of more than `most` bytes."""
    return ProblemError(413, f"The body of this request may have {most:,} bytes at the most.")


def _too_many(most: int) -> ProblemError:
    return ProblemError(
        413, f"There are more than {most} images in this request, or too many other values beside them."
    )


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; a repeated name is refused."""
    try:
        content = parse_json(body.decode(), _once)
    except UnicodeDecodeError:
        raise ProblemError(400, "The body is not UTF-8 text.") from None
    except ValueError as problem:
        raise ProblemError(400, f"The body is not JSON: {one_line(str(problem), 200)}.") from None
    if not isinstance(content, dict):
        raise ProblemError(422, f"The body is a JSON object, not {shown(content)}.")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name is repeated")
    return content


async def parsed_images(kind: str, body: bytes, most: int) -> tuple[list[Sent], bool]:
    """Call `sent_images`, in a thread if parsing could delay other requests."""
    if len(body) > INLINE_JSON and _media(kind) == "application/json":
        return await asyncio.to_thread(sent_images, kind, body, most)
    return sent_images(kind, body, most)


def _media(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()


def sent_images(kind: str, body: bytes, most: int) -> tuple[list[Sent], bool]:
    """Return the images or features in a body of this content type, and whether the body is one image."""
    media = _media(kind)
    images: list[Sent]
    if media == "application/json":
        # Counting is much faster than parsing millions of values.
        if body.count(b"[") + body.count(b"{") + body.count(b'"') // 2 > 2 * (most + 1) + MOST_OTHERS:
            raise _too_many(most)
        images = _in_json(json_object(body))
    elif media == "multipart/form-data":
        images = _in_parts(kind, body, most)
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
        raise ProblemError(413, f"There are {len(images)} images in this request, and {most} are the most.")
    return images, False


def _in_json(content: dict[str, Any]) -> list[Sent]:
    if set(content) == {"images"} and isinstance(content["images"], list):
        return [_decoded(text) for text in content["images"]]
    if set(content) == {"features"} and isinstance(content["features"], list):
        return [_features(row) for row in content["features"]]
    raise ProblemError(422, 'The body is {"images": [base64, ...]} or {"features": [[numbers], ...]}.')


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ProblemError(422, f"An image in JSON is text in base64, not {shown(text)}.")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        # Reported for this image only: the others may be valid.
        return b""


def _features(row: Any) -> list[float]:
    if not isinstance(row, list) or not row or len(row) > MOST_FEATURES:
        raise ProblemError(422, f"Features are lists of at most {MOST_FEATURES} numbers, not {shown(row)}.")
    for value in row:
        if type(value) not in (int, float) or not abs(value) <= 1e30:
            raise ProblemError(422, f"Features are finite numbers, not {shown(value)}.")
    return row


def _in_parts(kind: str, body: bytes, most: int) -> list[Sent]:
    """Return the files of a form in order; other fields are ignored."""
    _, options = parse_options_header(kind)
    boundary = options.get(b"boundary")
    if not boundary or len(boundary) > 200:
        raise ProblemError(400, "The content type of a form names its boundary, and this one does not.")
    # Parsing a part is slow, so a form with too many parts is refused first.
    if body.count(b"\r\n--" + boundary) > most + MOST_OTHERS:
        raise _too_many(most)
    form = _Form(most)
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except MultipartParseError as problem:
        raise ProblemError(400, f"The form cannot be read: {one_line(str(problem), 200)}.") from None
    if not form.ended:
        raise ProblemError(400, "The form is cut short: its last boundary is not there.")
    return list(form.files)


class _Form:
    """Collects the files while a form is parsed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.files: list[bytes] = []
        self.ended = False
        self._name = self._value = b""
        self._is_file = False
        self._parts: list[bytes] = []

    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_header_field": self._field,
            "on_header_value": self._text,
            "on_header_end": self._header,
            "on_end": self._all,
        }

    def _begin(self) -> None:
        self._is_file, self._parts = False, []
        self._name = self._value = b""

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _text(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        if self._name.lower() == b"content-disposition":
            _, options = parse_options_header(self._value)
            self._is_file = b"filename" in options
        self._name = self._value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._parts.append(data[start:end])

    def _end(self) -> None:
        if self._is_file:
            self.files.append(b"".join(self._parts))
            if len(self.files) > self._most:
                raise _too_many(self._most)

    def _all(self) -> None:
        self.ended = True
