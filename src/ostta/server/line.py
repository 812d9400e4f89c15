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

from ..core.types import Error, Prediction
from ..live.pool import StreamPool
from .arrivals import Arrivals
from .engine import Json
from .idempotency import ImageKey, require_same_image
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
    key: ImageKey | None = None
    # Requests that wait for the answer: those with the same key share an entry.
    waiters: int = 1
    # Whether the image was learned from, or is in the pool and may be.
    counted: bool = False

    def give_up(self) -> None:
        """One request less waits for the answer; what the pool has begun is finished."""
        self.waiters -= 1
        if self.waiters:
            return
        if self.key is not None and self.counted:
            # The same key may be sent again before the pool has answered.
            self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        elif not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # retrieved, so that asyncio does not log it

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
        # Images with a key that wait or are in the pool.
        self._keyed: dict[str, Entry] = {}
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
        self._keyed |= {entry.key.digest: entry for entry in entries if entry.key is not None}
        self._total.count += len(entries)
        self.move()

    def repeated(self, key: ImageKey) -> Entry | Json | None:
        """The answer to an image that was sent with this key before, or its entry while there is no answer yet."""
        entry = self._keyed.get(key.digest)
        if entry is None or entry.answer.done():
            return self.session.answers.get(key)
        assert entry.key is not None
        require_same_image(entry.key.checksum, key)
        entry.waiters += 1
        return entry

    def move(self) -> None:
        """Hand over what is ready, up to the first that is not."""
        while self._waiting and self._waiting[0].ready:
            entry = self._waiting[0]
            if entry.problem is None and entry.learn and not self._may_step(self.session, self._learning):
                return
            self._waiting.popleft()
            if entry.answer.done():  # nobody waits for it any more
                self._finish(entry)
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
            entry.counted = entry.learn
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
            entry.counted = False
            self._fail(entry, self._gone() if self.session.ended else problem)
        else:
            prediction: Prediction = future.result()
            if entry.learn:
                self.session.judged(prediction, steps)
                if entry.key is not None and prediction.verdict is not None:
                    self.session.answers.add(entry.key, prediction, steps)
                self._judged(self.session, entry, prediction)
            self._finish(entry)
            if not entry.answer.done():
                entry.answer.set_result((prediction, steps))
        self.move()

    def _gone(self) -> ProblemError:
        if self._closed is not None:
            return self._closed
        if self.session.ended:
            return ProblemError(404, f"The session {self.session.id!r} is no longer here.")
        return ProblemError(503, "The server is shutting down.", 5)

    def _finish(self, entry: Entry) -> None:
        self._total.count -= 1
        if entry.key is not None and self._keyed.get(entry.key.digest) is entry:
            del self._keyed[entry.key.digest]

    def _fail(self, entry: Entry, problem: BaseException) -> None:
        self._finish(entry)
        if isinstance(problem, Error) and entry.learn:
            self.session.refused()
        if not entry.answer.done():
            entry.answer.set_exception(problem)
