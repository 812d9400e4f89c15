"""An image on its way through a session: decoded, waiting, judged, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import torch
from PIL import Image

from ...core.types import Error, Prediction
from ..engine import Json, Sent
from ..pictures import Picture, small_enough, thumbnail_of
from ..predictions import to_json
from ..problems import ProblemError, one_line
from ..settings import Settings
from .idempotency import ImageKey


@dataclass(slots=True, eq=False)
class QueuedImage:
    """An image, or features, with a future for its prediction and step. The future has an exception if the image failed."""

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
            sentence = one_line(f"Nothing can be decided: {prediction.reason}.")
            return {"problem": ProblemError(422, sentence, code="image-undecidable").to_dict()}
        return to_json(prediction, step, evidence)


def queued_image(
    sent: Sent, learn: bool, settings: Settings, workers: ThreadPoolExecutor, decoded: Callable[[], None]
) -> QueuedImage:
    """Read the header of an image. Small images are decoded at once, large ones by a worker, which calls `decoded` on the loop."""
    loop = asyncio.get_running_loop()
    queued = QueuedImage(loop.create_future(), learn)
    try:
        if not isinstance(sent, bytes):
            queued.image = torch.tensor(sent, dtype=torch.float32)
            return queued
        picture = Picture(sent, settings.limits.megapixels)
        if small_enough(picture) and not settings.keep_images:
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
