"""One session: its adapter in the pool, the queue of its images, its history, and its saving.

All methods are called on the event loop. The adapter belongs to the thread of the pool. A session moves through these
states:

    open -> closed (a problem refuses new images, those in the pool are answered) -> ended (no longer in this process)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

from ...adapter import Adapter
from ...core.types import Error, Event, Prediction
from ...guard.guard import Rung
from ..engine import Json, Sent
from ..logs import log
from ..problems import MAYBE_COUNTED, ProblemError, shutting_down
from .idempotency import ImageKey, image_keys, require_same_image
from .images import QueuedImage, prediction_json, queue_image, require_room
from .saving import SavedSession, Shared

T = TypeVar("T")
LIGHTS = {
    Rung.CALM: "green",
    Rung.WARNED: "amber",
    Rung.SKIPPING: "amber",
    Rung.ROLLED_BACK: "red",
    Rung.FROZEN: "red",
}


class Session(SavedSession):
    """A stream of images with its own classes and its own state."""

    def __init__(self, id: str, name: str, adapter: Adapter, shared: Shared) -> None:
        super().__init__(id, name, adapter, shared)
        self._queue: deque[QueuedImage] = deque()
        # Images with an idempotency key that wait or are in the pool.
        self._keyed: dict[str, QueuedImage] = {}
        # Images in the pool.
        self._in_pool = 0
        self._closed: ProblemError | None = None

    # --- images -------------------------------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        return len(self._queue) + self._in_pool

    async def images(self, images: Sequence[Sent], learn: bool, evidence: bool, key: str | None) -> list[Json]:
        """Judge images in order; see `Engine.images`."""
        limits = self._shared.settings.limits
        require_room(len(images), self.waiting, self._shared.totals.images_waiting, limits)
        keys = image_keys(key, images) if learn and key is not None else [None] * len(images)
        # Images that wait, and answers to images that were sent before with the same key.
        entries: list[QueuedImage | Json] = []
        try:
            new = []
            for sent, image_key in zip(images, keys, strict=True):
                entry = None if image_key is None else self._repeated(image_key)
                if entry is None:
                    entry = queue_image(sent, learn, self._shared.settings, self._shared.workers, self._dispatch)
                    entry.key = image_key
                    new.append(entry)
                entries.append(entry)
            self._enqueue(new)
            async with asyncio.timeout(limits.answer_seconds):
                return [await each.to_json(evidence) if isinstance(each, QueuedImage) else each for each in entries]
        except TimeoutError:
            sentence = f"There was no answer within {limits.answer_seconds:g} seconds: send the request again later."
            raise _maybe_counted(ProblemError(503, sentence, 5), entries) from None
        except ProblemError as problem:
            raise _maybe_counted(problem, entries) from None
        finally:
            for entry in entries:
                if isinstance(entry, QueuedImage):
                    entry.give_up()

    def _repeated(self, key: ImageKey) -> QueuedImage | Json | None:
        """Return the answer to an image that was sent with this key before, or the image while it has no answer."""
        queued = self._keyed.get(key.digest)
        if queued is None or queued.answer.done():
            return self.answers.get(key)
        assert queued.key is not None
        require_same_image(queued.key.checksum, key)
        queued.waiters += 1
        return queued

    def _enqueue(self, images: list[QueuedImage]) -> None:
        if self._closed is not None:
            raise self._closed
        self._queue.extend(images)
        self._keyed |= {image.key.digest: image for image in images if image.key is not None}
        self._shared.totals.images_waiting += len(images)
        self._dispatch()

    def _dispatch(self) -> None:
        """Hand images to the pool, up to the first that is still being decoded or has to wait for a save."""
        while self._queue and self._queue[0].ready:
            queued = self._queue[0]
            if queued.problem is None and queued.learn and not self._may_step():
                return
            self._queue.popleft()
            if queued.answer.done():  # nobody waits for it any more
                self._finish(queued)
                continue
            if queued.problem is not None:
                self._fail(queued, queued.problem)
                continue
            try:
                future = self._submit(queued)
            except Error:  # the pool is closed, or the stream is gone
                self._fail(queued, self._gone())
                continue
            self._in_pool += 1
            self._learning += queued.learn
            queued.counted = queued.learn
            self._shared.arrivals.expect(future, partial(self._judged, queued), lambda: self.adapter.steps)

    def _submit(self, queued: QueuedImage) -> Future[Prediction]:
        image, pool = queued.image, self._shared.pool
        assert image is not None
        if isinstance(image, torch.Tensor):
            judge = Adapter.step_features if queued.learn else Adapter.predict_features
            return pool.call(self.id, lambda adapter: judge(adapter, image))
        if queued.learn:
            return pool.submit(self.id, image)
        return pool.call(self.id, lambda adapter: adapter.predict(image))

    def _judged(self, queued: QueuedImage, future: Future[Any], steps: int) -> None:
        self._in_pool -= 1
        self._learning -= queued.learn
        problem = future.exception()
        if problem is not None:
            queued.counted = False
            self._fail(queued, self._gone() if self.ended else problem)
        else:
            prediction: Prediction = future.result()
            if queued.learn:
                self._record(queued, prediction, steps)
            self._finish(queued)
            if not queued.answer.done():
                queued.answer.set_result((prediction, steps))
        self._dispatch()

    def _record(self, queued: QueuedImage, prediction: Prediction, steps: int) -> None:
        self.steps = steps
        accept = None if prediction.probability is None else self.adapter.acceptance.least[prediction.index]
        self.history.add(prediction, steps, accept, queued.thumbnail)
        if queued.key is not None and prediction.verdict is not None:
            self.answers.add(queued.key, prediction_json(prediction, steps, evidence=False))
        self._shared.totals.add(prediction)
        for event in prediction.events:
            log("guard", level="warning", session=self.id, step=steps, kind=event.kind, sentence=event.sentence)
        if not self.ended:
            self._stepped()

    def _gone(self) -> ProblemError:
        if self._closed is not None:
            return self._closed
        if self.ended:
            return ProblemError(404, f"The session {self.id!r} is no longer here.")
        return shutting_down()

    def _finish(self, queued: QueuedImage) -> None:
        self._shared.totals.images_waiting -= 1
        if queued.key is not None and self._keyed.get(queued.key.digest) is queued:
            del self._keyed[queued.key.digest]

    def _fail(self, queued: QueuedImage, problem: BaseException) -> None:
        self._finish(queued)
        if isinstance(problem, Error) and queued.learn:
            self.history.add_refused()
        if not queued.answer.done():
            queued.answer.set_exception(problem)

    # --- opening and closing ------------------------------------------------------------------------------------------
    def close(self, problem: ProblemError) -> None:
        """Refuse the waiting images and all that follow, until `open`. Images in the pool are answered."""
        self._closed = problem
        while self._queue:
            self._fail(self._queue.popleft(), problem)

    def open(self) -> None:
        """Accept images again."""
        self._closed = None

    def end(self, problem: ProblemError) -> None:
        """Leave this process."""
        self.close(problem)
        self.ended = True
        self.history.changed()

    async def drained(self) -> None:
        """Wait until the pool has answered all images of this session."""
        while self._in_pool:
            await asyncio.sleep(0.01)

    # --- changes by hand ----------------------------------------------------------------------------------------------
    async def call(self, function: Callable[[Adapter], T]) -> T:
        """Call `function` with the adapter before all images that wait."""
        done: asyncio.Future[T] = self._loop.create_future()
        with self.known_to_pool():
            future = self._shared.pool.call(self.id, function, first=True)
        self._shared.arrivals.expect(future, lambda result, _: _settle(done, result))
        return await done

    @contextmanager
    def known_to_pool(self) -> Iterator[None]:
        """Replace what the pool says about an unknown stream: it names other streams."""
        try:
            yield
        except Error:
            raise self._gone() from None

    def replace(self, adapter: Adapter) -> None:
        """Continue with another state."""
        self.adapter = adapter
        self.steps = adapter.steps
        self.history.restart()
        self.history.add_event(Event("replaced", "The state was replaced by an uploaded one."), self.steps)

    # --- showing ------------------------------------------------------------------------------------------------------
    def to_json(self) -> Json:
        """Return the session as the API shows it."""
        adapter, counts = self.adapter, self.history.counts
        return {
            "id": self.id,
            "name": self.name,
            "classes": list(adapter.classes),
            "method": adapter.method_name,
            "score": adapter.score_name,
            "identifier": adapter.identifier_name,
            "profile": adapter.profile,
            "guard": adapter.guard is not None,
            "steps": self.steps,
            **self.history.to_json(),
            "frozen": adapter.frozen,
            "guard_light": "off" if adapter.guard is None else LIGHTS[adapter.guard.rung],
            "class_counts": {name: counts.classes.get(name, 0) for name in adapter.classes},
            "created": self.created,
            "saved_steps": self.saved_steps,
            "problem": self.problem,
            "unfamiliar": adapter.unfamiliar,
        }


def _maybe_counted(problem: ProblemError, entries: Sequence[QueuedImage | Json]) -> ProblemError:
    """Return `problem`, or a conflict if a client that repeats the request without a key could count images twice."""
    if problem.status != 503 or not any(not isinstance(each, QueuedImage) or each.counted for each in entries):
        return problem
    return ProblemError(
        409,
        f"{problem.detail.rstrip('.')}. Images of this request may have been counted: "
        "send it again only with its idempotency key.",
        problem.retry_after,
        MAYBE_COUNTED,
    )


def _settle(done: asyncio.Future[T], result: Future[T]) -> None:
    problem = result.exception()
    if not done.done():
        if problem is None:
            done.set_result(result.result())
        else:
            done.set_exception(problem)
