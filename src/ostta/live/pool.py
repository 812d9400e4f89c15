"""Many independent streams on one backbone in one process.

Each stream is an `ostta.Adapter` with separate parameters, banks, options and steps. The pool only schedules the image
tower: images that wait at the same time are processed in one batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

from .. import backbones
from ..adapter import Adapter, load
from ..core.overlay import learning
from ..core.text import counted, first_few
from ..core.types import Error, Prediction
from ..data.images import ImageSource
from ..step import unseen_prediction
from .batched_tower import BatchedTower
from .shared_step import Seat, can_share, step_together

# Maximum batch size, and maximum size of the record of a batch in bytes. Larger batches are hardly faster on a CPU,
# especially for towers with many tokens, whose images also need more memory. A step in which all streams learn needs up
# to about four times the size of the record.
MOST, RECORDED = 16, 280_000_000

# An image as for `Adapter.step`, or views as for `step_views`.
PoolImage = ImageSource | torch.Tensor
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Call:
    """A queued function call with the adapter of a stream."""

    function: Callable[[Adapter], Any]


@dataclass(frozen=True, slots=True)
class _Returned:
    """The return value of a call."""

    value: Any


@dataclass(slots=True)
class PooledStream:
    """An adapter and its waiting images."""

    name: str
    adapter: Adapter
    shares: bool
    waiting: deque[tuple[PoolImage | _Call, Future[Any]]] = field(default_factory=deque)


@dataclass(slots=True)
class _BatchItem:
    """An image of the current batch and its result."""

    stream: PooledStream
    image: PoolImage | _Call
    future: Future[Any]
    result: Prediction | _Returned | BaseException | None = None


class StreamPool:
    """A thread-safe pool of streams, identified by name.

    `batch` is the maximum number of images in one pass of the tower; by default, as many as fit into a fixed amount of
    memory. `queue` is the maximum number of waiting images of one stream. `device` and `dtype` are as in `ostta.load`.

    In the examples of its functions, `pool` has a stream "door", and `image` is a photograph of a cat.

    >>> pool = StreamPool("embedded", batch=16)
    >>> for name in ("door", "yard"):
    ...     adapter = pool.add(name, ["cat", "dog", "ship"], seed=3)
    >>> pool
    StreamPool(embedded, 2 streams (door, yard), batch 16, 0 images waiting)
    >>> pool.step({"door": image, "yard": image})["yard"].label
    'cat'
    """

    def __init__(
        self,
        backbone: backbones.BackboneSource,
        *,
        batch: int | None = None,
        queue: int = 64,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
    ) -> None:
        if queue < 1 or (batch is not None and batch < 1):
            raise Error(f"`batch` and `queue` are at least 1, not {batch} and {queue}.", code="option-invalid")
        self.backbone = backbones.as_backbone(backbone, device, dtype)
        with learning():
            self._tower = BatchedTower(self.backbone.vision, self.backbone.preprocessing.image_size)
        self.batch = batch or max(1, min(MOST, RECORDED // max(1, self._tower.bytes_an_image)))
        self.queue = queue
        # In the order of their next turns.
        self._streams: dict[str, PooledStream] = {}
        # Two locks, acquired in this order: the first protects adapter states, the second queues and names.
        self._working = threading.RLock()
        self._queues = threading.Condition()
        # Number of threads waiting for a pause. Without it, the pool thread would reacquire the lock immediately.
        self._pausing = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def __repr__(self) -> str:
        with self._queues:
            streams, waiting = sorted(self._streams), sum(len(stream.waiting) for stream in self._streams.values())
            doing = ", closed" if self._closed else "" if self._thread is None else ", in the background"
        return (
            f"StreamPool({self.backbone.id}, {first_few(streams, 'stream')}, batch {self.batch}, "
            f"{counted(waiting, 'image')} waiting{doing})"
        )

    # --- streams ------------------------------------------------------------------------------------------------------
    @property
    def names(self) -> list[str]:
        with self._queues:
            return sorted(self._streams)

    def add(self, name: str, stream: Sequence[str] | Adapter, **options: Any) -> Adapter:
        """Add a stream: from classes with the options of `ostta.load`, or from an adapter with the same backbone.

        The adapter belongs to the pool until `remove`; use `held` to read or change it.

        >>> pool.add("yard", ["ship", "frog"], method="tda")
        Adapter(embedded, 2 classes (ship, frog), method tda, identifier lda, profile reference, 0 steps)
        """
        if not isinstance(name, str) or not name:
            raise Error(f"The name of a stream is a non-empty string, not {name!r}.", code="stream-name-invalid")
        with self._queues:
            self._refuse_known(name)
        if isinstance(stream, Adapter):
            if options:
                raise Error(f"The stream {name!r} is given as an adapter: leave the options out.", code="stream-exists")
            adapter = stream
        else:
            adapter = load(self.backbone, stream, **options)
        self._put(name, adapter)
        return adapter

    def remove(self, name: str) -> Adapter:
        """Remove a stream and return its adapter, which can then be used alone. Images that still wait are refused.

        >>> pool.remove("door").step(image).label
        'cat'
        >>> pool.names
        []
        """
        with self._paused(), self._queues:
            stream = self._streams.pop(self._known(name).name)
            left, stream.waiting = list(stream.waiting), deque()
        for _, future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    Error(f"The stream {name!r} was removed before this image had its turn.", code="stream-removed")
                )
        return stream.adapter

    def held(self, name: str) -> AbstractContextManager[Adapter]:
        """Return a context manager with the adapter of a stream. All streams of the pool pause inside the block.

        >>> with pool.held("door") as adapter:
        ...     adapter.reset()
        ...     print(adapter.predict(image).label)
        cat
        """
        return self._held(name)

    @contextmanager
    def _held(self, name: str) -> Iterator[Adapter]:
        with self._paused():
            with self._queues:
                adapter = self._known(name).adapter
            yield adapter

    def save(self, name: str, path: str | Path) -> None:
        """Save the state of a stream, as `Adapter.save` does.

        >>> pool.save("door", "door.ostta")
        >>> pool.restore("door", "door.ostta").steps
        0
        """
        with self.held(name) as adapter:
            adapter.save(path)

    def restore(
        self,
        name: str,
        path: str | Path,
        method: str | type[Any] | None = None,
        identifier: str | type[Any] | None = None,
        score: str | type[Any] | None = None,
    ) -> Adapter:
        """Restore a stream from a state file. A stream of that name is replaced, and its waiting images are kept.

        `method`, `score` and `identifier` are those of `Adapter.restore`.

        >>> pool.save("door", "door.ostta")
        >>> adapter = pool.restore("yard", "door.ostta")
        >>> pool.names
        ['door', 'yard']
        """
        adapter = Adapter.restore(path, self.backbone, method=method, identifier=identifier, score=score)
        self._put(name, adapter, replace=True)
        return adapter

    def replace(self, name: str, adapter: Adapter) -> None:
        """Replace the adapter of a stream; images that wait stay in the queue.

        >>> pool.replace("door", ostta.load(pool.backbone, ["ship", "frog"]))
        >>> pool.step({"door": image})["door"].best
        'frog'
        """
        with self._queues:
            self._known(name)
        self._put(name, adapter, replace=True)

    # --- images -------------------------------------------------------------------------------------------------------
    def submit(self, name: str, image: PoolImage) -> Future[Prediction]:
        """Queue an image as for `Adapter.step`, or views as for `step_views`. A full queue is an Error.

        The future has the prediction, or the Error about the image. Its callbacks run on the thread of the pool.

        >>> with pool:
        ...     waiting = pool.submit("door", image)
        ...     print(waiting.result())
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        with self._queues:
            (future,) = self._queued({name: image})
            return future

    def call(self, name: str, function: Callable[[Adapter], T], *, first: bool = False) -> Future[T]:
        """Call `function` with the adapter of a stream, after the images that wait, or with `first` before them.

        Unlike `held`, this does not pause other streams. A call with `first` is accepted even if the queue is full.

        >>> with pool:
        ...     waiting = pool.submit("door", image)
        ...     print(pool.call("door", lambda adapter: adapter.steps).result())
        1
        """
        future: Future[T] = Future()
        with self._queues:
            self._refuse_closed()
            stream = self._known(name)
            if first:
                stream.waiting.appendleft((_Call(function), future))
            else:
                self._refuse_full(stream)
                stream.waiting.append((_Call(function), future))
            self._queues.notify_all()
        return future

    def step(self, images: Mapping[str, PoolImage]) -> dict[str, Prediction]:
        """Step one image of each named stream. An image that cannot be read has a prediction with the `reason`.

        >>> pool.step({"door": image})
        {'door': Prediction(cat, score 0.45 > 0.00, unreliable)}
        """
        with self._queues:
            futures = dict(zip(images, self._queued(images), strict=True))
            # A callback of a future runs on the thread of the pool, which cannot wait for itself.
            runs_itself = self._thread is None or self._thread is threading.current_thread()
        while runs_itself and not all(future.done() for future in futures.values()):
            self.run_once()
        return {name: _answer(future) for name, future in futures.items()}

    def run_once(self) -> int:
        """Run one batch, with at most one image of each stream, and return the number of images.

        >>> waiting = [pool.submit("door", image) for _ in range(2)]
        >>> pool.run_once(), waiting[0].done(), waiting[1].done()
        (1, True, False)
        """
        with self._working:
            batch = self._pop_batch()
            try:
                with learning():
                    self._step(batch)
            except BaseException as problem:
                # Resolve every future, even if the batch was interrupted.
                for item in batch:
                    item.result = item.result or _ended(problem)
                if threading.current_thread() is not self._thread:
                    self._resolve(batch)
                    raise
        # Release the lock first, because callbacks run here and may use the pool.
        self._resolve(batch)
        return len(batch)

    # --- the thread ---------------------------------------------------------------------------------------------------
    def start(self) -> Self:
        """Start a thread that processes images; a `with` block starts it and closes the pool at the end.

        >>> pool.start().submit("door", image).result().label
        'cat'
        >>> pool.close()
        """
        with self._queues:
            self._refuse_closed()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ostta-pool", daemon=True)
                self._thread.start()
        return self

    def close(self) -> None:
        """Process the images that wait, stop the thread, and refuse new images. Streams can still be saved or removed.

        >>> waiting = pool.submit("door", image)
        >>> pool.close()
        >>> waiting.result().label
        'cat'
        """
        with self._queues:
            self._closed = True
            self._queues.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        while self.run_once():
            pass

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- internals ----------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        while True:
            with self._queues:
                self._queues.wait_for(self._has_work)
                if self._closed:
                    return
            self.run_once()

    def _has_work(self) -> bool:
        return self._closed or (not self._pausing and any(stream.waiting for stream in self._streams.values()))

    @contextmanager
    def _paused(self) -> Iterator[None]:
        with self._queues:
            self._pausing += 1
        try:
            with self._working:
                yield
        finally:
            with self._queues:
                self._pausing -= 1
                self._queues.notify_all()

    def _put(self, name: str, adapter: Adapter, replace: bool = False) -> None:
        if adapter.backbone is not self.backbone:
            raise Error(
                f"The stream {name!r} uses another backbone ({adapter.backbone.id}): "
                "create it with `ostta.load(pool.backbone, ...)`.",
                code="backbone-mismatch",
            )
        stream = PooledStream(name, adapter, can_share(adapter, self._tower))
        with self._paused(), self._queues:
            twin = next((other.name for other in self._streams.values() if other.adapter is adapter), None)
            if twin is not None:
                raise Error(
                    f"This adapter is already in the pool, as the stream {twin!r}: each stream needs its own.",
                    code="stream-exists",
                )
            if replace and name in self._streams:
                stream.waiting = self._streams[name].waiting
            else:
                self._refuse_known(name)
            self._streams[name] = stream

    def _queued(self, images: Mapping[str, PoolImage]) -> list[Future[Prediction]]:
        """Queue all images, or none if one is refused."""
        self._refuse_closed()
        for name in images:
            self._refuse_full(self._known(name))
        futures: list[Future[Prediction]] = [Future() for _ in images]
        for (name, image), future in zip(images.items(), futures, strict=True):
            self._streams[name].waiting.append((image, future))
        self._queues.notify_all()
        return futures

    def _pop_batch(self) -> list[_BatchItem]:
        """Pop at most one image per stream, which preserves their order. These streams come last in the next batch."""
        batch: list[_BatchItem] = []
        with self._queues:
            for stream in list(self._streams.values()):
                while stream.waiting and len(batch) < self.batch:
                    image, future = stream.waiting.popleft()
                    if future.set_running_or_notify_cancel():
                        batch.append(_BatchItem(stream, image, future))
                        self._streams[stream.name] = self._streams.pop(stream.name)
                        break
        return batch

    def _step(self, batch: Sequence[_BatchItem]) -> None:
        with ExitStack() as used:
            seats: list[tuple[Seat, _BatchItem]] = []
            for item in batch:
                if item.stream.shares and not isinstance(item.image, _Call):
                    try:
                        used.enter_context(item.stream.adapter.in_use())
                        seats.append((Seat.of(item.stream.adapter, item.image), item))
                    except Exception as problem:
                        item.result = problem
            if seats:
                try:
                    step_together(self._tower, [seat for seat, _ in seats], self.batch)
                except Exception as problem:  # such as out of memory: passed to the futures
                    for seat, _ in seats:
                        seat.result = problem if seat.result is None else seat.result
                finally:
                    for seat, item in seats:
                        item.result = seat.result
        # Streams that cannot share the tower come last.
        for item in batch:
            if isinstance(item.image, _Call) or not item.stream.shares:
                item.result = _run_alone(item.stream.adapter, item.image)

    @staticmethod
    def _resolve(batch: Sequence[_BatchItem]) -> None:
        for item in batch:
            if isinstance(item.result, _Returned):
                item.future.set_result(item.result.value)
            elif isinstance(item.result, Prediction):
                item.future.set_result(item.result)
            else:
                item.future.set_exception(item.result)

    def _known(self, name: str) -> PooledStream:
        if name not in self._streams:
            raise Error(
                f"There is no stream {name!r}; there are {', '.join(sorted(self._streams)) or 'none yet'}.",
                code="stream-unknown",
            )
        return self._streams[name]

    def _refuse_full(self, stream: PooledStream) -> None:
        if len(stream.waiting) >= self.queue:
            raise Error(
                f"The stream {stream.name!r} has {self.queue} waiting images, which is the limit: wait for "
                "its answers, or skip images.",
                code="queue-full",
            )

    def _refuse_known(self, name: str) -> None:
        if name in self._streams:
            raise Error(
                f"There is already a stream {name!r}: remove it first, or choose another name.", code="stream-exists"
            )

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Error("The pool is closed and accepts no more images.", code="pool-closed")


def _run_alone(adapter: Adapter, image: PoolImage | _Call) -> Prediction | _Returned | Exception:
    try:
        if isinstance(image, _Call):
            return _Returned(image.function(adapter))
        return adapter.step_views(image) if isinstance(image, torch.Tensor) else adapter.step(image)
    except Exception as problem:
        return problem


def _ended(problem: BaseException) -> Exception:
    """Return the exception for the futures of a batch that was interrupted, such as by a `SystemExit` in a tower."""
    if isinstance(problem, Exception):
        return problem
    return Error(
        f"The batch of this image was ended by {type(problem).__name__}; the stream is as before.", code="batch-ended"
    )


def _answer(future: Future[Prediction]) -> Prediction:
    try:
        return future.result()
    except Error as problem:
        return unseen_prediction(str(problem))
