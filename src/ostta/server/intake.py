"""From what was sent to an image in the line, and from its answer to JSON."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch

from ..core.types import Error
from .engine import Json, Sent
from .line import Entry, Line
from .pictures import Picture, small_enough, thumbnail_of
from .predictions import to_json
from .problems import ProblemError, one_line
from .settings import Settings


def entry_of(sent: Sent, learn: bool, line: Line, workers: ThreadPoolExecutor, settings: Settings) -> Entry:
    """An image for the line. Its header is looked at now; a small one is decoded now, a large one by a worker while it waits."""
    loop = asyncio.get_running_loop()
    entry = Entry(loop.create_future(), learn)
    try:
        if not isinstance(sent, bytes):
            entry.image = torch.tensor(sent, dtype=torch.float32)
            return entry
        picture = Picture(sent, settings.limits.megapixels)
        if small_enough(picture) and not settings.keep_images:
            entry.image = picture.decode()
            return entry
    except Error as problem:
        entry.problem = problem
        return entry

    def decode() -> None:
        try:
            image = picture.decode()
            if settings.keep_images:
                entry.thumbnail = thumbnail_of(image)
            entry.image = image
        except Exception as problem:
            entry.problem = problem
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(line.move)

    workers.submit(decode)
    return entry


async def answer_of(entry: Entry, evidence: bool) -> Json:
    """The prediction as JSON, or a problem in its place where the image cannot be read or seen."""
    try:
        # Shielded: another request with the same idempotency key may wait for it too.
        prediction, step = await asyncio.shield(entry.answer)
    except Error as problem:
        return {"problem": ProblemError(422, one_line(str(problem))).to_dict()}
    if prediction.verdict is None:
        return {"problem": ProblemError(422, one_line(f"Nothing can be decided: {prediction.reason}.")).to_dict()}
    return to_json(prediction, step, evidence)
