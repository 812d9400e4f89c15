"""The images of one session that wait: handed to the pool in the order in which their requests were read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from PIL import Image

from ...core.types import Error, Prediction
from ..pool import StreamPool
from .arrivals import Arrivals
from .problems import ProblemError
from .session import Session

# An image that is read, features, or None while it is being decoded.
Readable = Image.Image | torch.Tensor | None


@dataclass(slots=True, eq=False)
class Entry:
    """An image on its way; `answer` is its prediction with the step, or an Error about it."""

    answer: asyncio.Future[tuple[Prediction, int]]
    learn: bool = True
    image: Readable = None
    problem: Exception | None = None
    thumbnail: bytes | None = None

    def give_up(self) -> None:
        """Nobody waits for the answer any more; what the pool has begun is finished."""
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # looked at, so that nobody misses it

    @property
    def ready(self) -> bool:
        return self.image is not None or self.problem is not None


@dataclass(slots=True)
class Total:
    """Images that wait, of all sessions."""

    count: int = 0


class Line:
    """One session's. `judged` is called after each step that was learned from, or could have been."""

    def __init__(
        self,
        session: Session,
        pool: StreamPool,
        arrivals: Arrivals,
        may_step: Callable[[Session, int], bool],
        judged: Callable[[Session, Entry, Prediction], None],
        total: Total,
    ) -> None:
        self.session, self._pool, self._arrivals = session, pool, arrivals
        self._may_step, self._judged, self._total = may_step, judged, total
        self._waiting: deque[Entry] = deque()
        # Images in the pool, and those of them that are learned from.
        self._inside = self._learning = 0
        self._closed: ProblemError | None = None

    def __len__(self) -> int:
        return len(self._waiting) + self._inside

    def put(self, entries: list[Entry]) -> None:
        """At the end of the line; refused where it is closed."""
        if self._closed is not None:
            raise self._closed
        self._waiting.extend(entries)
        self._total.count += len(entries)
        self.move()

    def move(self) -> None:
        """Hand over what is ready, up to the first that is not."""
        while self._waiting and self._waiting[0].ready:
            entry = self._waiting[0]
            if entry.problem is None and entry.learn and not self._may_step(self.session, self._learning):
                return
            self._waiting.popleft()
            if entry.answer.done():  # nobody waits for it any more
                self._total.count -= 1
                continue
            if entry.problem is not None:
                self._fail(entry, entry.problem)
                continue
            try:
                future = self._handed(entry)
            except Error:  # the pool is closed, or has no such stream any more; what it says is not for strangers
                self._fail(entry, self._gone())
                continue
            self._inside += 1
            self._learning += entry.learn
            self._arrivals.expect(future, self._steps, partial(self._arrived, entry))

    def close(self, problem: ProblemError) -> None:
        """Refuse all that wait here, and whatever comes, until `open`; what the pool has is answered."""
        self._closed = problem
        while self._waiting:
            self._fail(self._waiting.popleft(), problem)

    def open(self) -> None:
        """Take images again."""
        self._closed = None

    async def emptied(self) -> None:
        """Wait until the pool has answered all it has of this session."""
        while self._inside:
            await asyncio.sleep(0.01)

    def _steps(self) -> int:
        return self.session.adapter.steps

    def _handed(self, entry: Entry) -> Future[Prediction]:
        image = entry.image
        assert image is not None
        if isinstance(image, torch.Tensor):
            features = image
            if entry.learn:
                return self._pool.call(self.session.id, lambda adapter: adapter.step_features(features))
            return self._pool.call(self.session.id, lambda adapter: adapter.predict_features(features))
        if entry.learn:
            return self._pool.submit(self.session.id, image)
        picture = image
        return self._pool.call(self.session.id, lambda adapter: adapter.predict(picture))

    def _arrived(self, entry: Entry, future: Future[Any], steps: int) -> None:
        self._inside -= 1
        self._learning -= entry.learn
        problem = future.exception()
        if problem is not None:
            self._fail(entry, self._gone() if self.session.ended else problem)
        else:
            prediction: Prediction = future.result()
            if entry.learn:
                self.session.judged(prediction, steps)
                self._judged(self.session, entry, prediction)
            self._total.count -= 1
            if not entry.answer.done():
                entry.answer.set_result((prediction, steps))
        self.move()

    def _gone(self) -> ProblemError:
        if self.session.ended:
            return ProblemError(404, f"The session {self.session.id!r} is no longer here.")
        return ProblemError(503, "The server is shutting down.", 5)

    def _fail(self, entry: Entry, problem: BaseException) -> None:
        self._total.count -= 1
        if isinstance(problem, Error) and entry.learn:
            self.session.refused()
        if not entry.answer.done():
            entry.answer.set_exception(problem)
