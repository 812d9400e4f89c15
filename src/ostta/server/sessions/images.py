"""Images of a session: their checks, decoding, queue entries, and answers as JSON."""

from __future__ import annotations

import asyncio
import errno
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from PIL import Image

from ...core.types import Error, Prediction, finite
from ...data.images import OpenedImage, TooLargeError
from ..engine import Json, Sent
from ..problems import ProblemError, short_line
from ..settings import Limits, Settings
from .idempotency import ImageKey

FORMATS = ("JPEG", "PNG", "WEBP")
# Pixels of an image that is decoded on the event loop, because handing it to another thread would take longer.
SMALL = 128 * 128
# Pixels on each side of a thumbnail.
SIDE = 96


@dataclass(slots=True, eq=False)
class QueuedImage:
    """An image, or features, with a future for its prediction and step, which has an exception if the image failed."""

    answer: asyncio.Future[tuple[Prediction, int]]
    learn: bool = True
    # None while the image is being decoded.
    image: Image.Image | torch.Tensor | None = None
    problem: Exception | None = None
    thumbnail: bytes | None = None
    key: ImageKey | None = None
    # Requests that wait for the answer. Requests with the same key share one image.
    waiters: int = 1
    # Whether the image was learned from, or is in the pool and may be.
    counted: bool = False

    @property
    def ready(self) -> bool:
        return self.image is not None or self.problem is not None

    def give_up(self) -> None:
        """Remove one waiting request. An image that the pool has begun is finished."""
        self.waiters -= 1
        if self.waiters:
            return
        if self.key is not None and self.counted:
            # The same key may be sent again before the pool has answered.
            self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        elif not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # retrieved, so that asyncio does not log it

    async def to_json(self, evidence: bool) -> Json:
        """Wait for the prediction; the result is a problem if the image cannot be read or judged."""
        try:
            # Shielded, because another request with the same key may wait for it too.
            prediction, step = await asyncio.shield(self.answer)
        except Error as problem:
            return {"problem": ProblemError.of(problem).to_dict()}
        if prediction.verdict is None:
            sentence = short_line(f"Nothing can be decided: {prediction.reason}.")
            return {"problem": ProblemError(422, sentence, code="image-undecidable").to_dict()}
        return prediction_json(prediction, step, evidence)


def prediction_json(prediction: Prediction, step: int, evidence: bool) -> Json:
    """Return the answer of the API. The scores of all classes are included with `evidence` only."""
    shown = prediction if evidence else replace(prediction, class_scores=None)
    return {"step": step, **finite(shown.to_dict())}


def require_room(count: int, waiting: int, waiting_in_all: int, limits: Limits) -> None:
    """Refuse `count` more images if too many images of the session or of all sessions would wait."""
    if waiting + count > limits.waiting:
        raise ProblemError(
            429,
            f"{waiting} images of this session are waiting, and the limit is {limits.waiting}: send again later.",
            1,
        )
    if waiting_in_all + count > limits.waiting_in_all:
        raise ProblemError(
            429, f"The limit of {limits.waiting_in_all} waiting images on this server is reached: send again later.", 1
        )


def queue_image(
    sent: Sent, learn: bool, settings: Settings, workers: ThreadPoolExecutor, decoded: Callable[[], None]
) -> QueuedImage:
    """Read the header of an image and decode it: large images in a worker thread, which calls `decoded` on the loop."""
    loop = asyncio.get_running_loop()
    queued = QueuedImage(loop.create_future(), learn)
    try:
        if not isinstance(sent, bytes):
            queued.image = torch.tensor(sent, dtype=torch.float32)
            return queued
        picture = opened_image(sent, settings.limits.megapixels)
        if picture.pixels <= SMALL and not settings.keep_images:
            queued.image = picture.decode()
            return queued
    except Error as problem:
        queued.problem = problem
        return queued

    def decode() -> None:
        try:
            image = picture.decode()
            if settings.keep_images:
                queued.thumbnail = thumbnail_of(image)
            queued.image = image
        except Exception as problem:
            queued.problem = problem
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(decoded)

    workers.submit(decode)
    return queued


def opened_image(content: bytes, megapixels: float) -> OpenedImage:
    """Open an uploaded image. An image that is too large is refused by its header, before it is decoded."""
    if not content:
        raise Error("The image is empty: send the whole content of an image file.", code="image-unreadable")
    is_webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    if not is_webp and not content.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")):
        raise Error("The image is not a JPEG, PNG or WebP file.", code="image-unreadable")
    try:
        return OpenedImage(io.BytesIO(content), "The image", megapixels, FORMATS)
    except TooLargeError as problem:
        raise Error(
            f"The image has too many pixels: this server accepts at most {megapixels:g} megapixels.", code=problem.code
        ) from None
    except Error as problem:
        # Pillow imports its readers on first use, which may fail without file descriptors.
        if isinstance(problem.__cause__, OSError) and problem.__cause__.errno in (errno.EMFILE, errno.ENFILE):
            raise ProblemError(503, "The server cannot open any more files: send again later.", 5) from None
        raise


def thumbnail_of(image: Image.Image) -> bytes:
    """Return a small JPEG of a decoded image."""
    small = image.copy()
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
