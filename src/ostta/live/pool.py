"""Many independent streams on one backbone in one process.

A stream of the pool is an `ostta.Adapter` and stays one: its values, banks, options and steps are its own. The pool decides only
where passes of the image tower are computed: images that wait at the same time go through it in one batch.
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
from ..core.modes import learning
from ..core.types import Error, Prediction
from ..core.words import counted, first_few
from ..data.images import ImageSource
from ..step import unseen_prediction
from .batched_tower import BatchedTower
from .shared_step import Seat, can_share, step_together

# A larger batch is hardly quicker on a processor. The more tokens a tower has, the sooner that is so, and the more memory each
# image takes: bytes of one record, of which a step in which all learn needs about four times as much at its highest.
MOST, RECORDED = 16, 280_000_000

# What a stream takes: what `Adapter.step` does, or views as `step_views` does.
PoolImage = ImageSource | torch.Tensor
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to be done with a stream's adapter when its turn comes."""

    function: Callable[[Adapter], Any]


@dataclass(frozen=True, slots=True)
class _Returned:
    """What a call gave."""

    value: Any


@dataclass(slots=True)
class PooledStream:
    """An adapter, and the images that wait for it."""

    name: str
    adapter: Adapter
    shares: bool
    waiting: deque[tuple[PoolImage | _Call, Future[Any]]] = field(default_factory=deque)


@dataclass(slots=True)
class _Taken:
    """An image whose turn it is, and in the end what became of it."""

    stream: PooledStream
    image: PoolImage | _Call
    future: Future[Any]
    result: Prediction | _Returned | BaseException | None = None


class StreamPool:
    """Streams by name. All functions may be called from any thread.

    `batch`: the most images in one pass of the tower, if not given as many as fit the memory that is set aside for it;
    `queue`: the most images that wait of one stream; `device`, `dtype`: as in `ostta.load`.

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
            raise Error(f"`batch` and `queue` are at least 1, not {batch} and {queue}.")
        self.backbone = backbones.as_backbone(backbone, device, dtype)
        with learning():
            self._tower = BatchedTower(self.backbone.vision, self.backbone.preprocessing.image_size)
        self.batch = batch or max(1, min(MOST, RECORDED // max(1, self._tower.bytes_an_image)))
        self.queue = queue
        # In the order of their next turns.
        self._streams: dict[str, PooledStream] = {}
        # Two locks, taken in this order: the adapters' states change under the first, queues and names under the second.
        self._working = threading.RLock()
        self._news = threading.Condition()
        # Who wants the pool to stand still. A thread that takes a lock again at once would hardly ever let others have it.
        self._guests = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def __repr__(self) -> str:
        with self._news:
            streams, waiting = sorted(self._streams), sum(len(stream.waiting) for stream in self._streams.values())
            doing = ", closed" if self._closed else "" if self._thread is None else ", in the background"
        return (
            f"StreamPool({self.backbone.id}, {first_few(streams, 'stream')}, batch {self.batch}, "
            f"{counted(waiting, 'image')} waiting{doing})"
        )

    # --- streams ------------------------------------------------------------------------------------------------------
    @property
    def names(self) -> list[str]:
        with self._news:
            return sorted(self._streams)

    def add(self, name: str, stream: Sequence[str] | Adapter, **options: Any) -> Adapter:
        """A new stream: of classes, with the options of `ostta.load`, or of an adapter that has this pool's backbone.

        The adapter is the pool's until `remove`: use `held` to look at it or change it.

        >>> pool.add("yard", ["ship", "frog"], method="tda")
        Adapter(embedded, 2 classes (ship, frog), method tda, identifier lda, profile reference, 0 steps)
        """
        if not isinstance(name, str) or not name:
            raise Error(f"A stream is called by a text that is not empty, not {name!r}.")
        with self._news:
            self._refuse_known(name)
        if isinstance(stream, Adapter):
            if options:
                raise Error(f"The stream {name!r} is an adapter already: its options cannot be given again.")
            adapter = stream
        else:
            adapter = load(self.backbone, stream, **options)
        self._put(name, adapter)
        return adapter

    def remove(self, name: str) -> Adapter:
        """Take a stream out; its adapter can be used on its own from here on. Images that still wait are refused.

        >>> pool.remove("door").step(image).label
        'cat'
        >>> pool.names
        []
        """
        with self._standing(), self._news:
            stream = self._streams.pop(self._known(name).name)
            left, stream.waiting = list(stream.waiting), deque()
        for _, future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(Error(f"The stream {name!r} was removed before this image had its turn."))
        return stream.adapter

    def held(self, name: str) -> AbstractContextManager[Adapter]:
        """The stream's adapter, for the time of the block, in which no stream of the pool moves: to predict, to reset, to save.

        >>> with pool.held("door") as adapter:
        ...     adapter.reset()
        ...     print(adapter.predict(image).label)
        cat
        """
        return self._held(name)

    @contextmanager
    def _held(self, name: str) -> Iterator[Adapter]:
        with self._standing():
            with self._news:
                adapter = self._known(name).adapter
            yield adapter

    def save(self, name: str, path: str | Path) -> None:
        """Write the stream's state, as `Adapter.save` does.

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
        """The stream as it was saved: in the place of the one with that name, whose waiting images it gets, or a new one.

        `method`, `score` and `identifier` as in `Adapter.restore`.

        >>> pool.save("door", "door.ostta")
        >>> adapter = pool.restore("yard", "door.ostta")
        >>> pool.names
        ['door', 'yard']
        """
        adapter = Adapter.restore(path, self.backbone, method=method, identifier=identifier, score=score)
        self._put(name, adapter, replace=True)
        return adapter

    def replace(self, name: str, adapter: Adapter) -> None:
        """Another adapter in the place of the stream of that name, whose waiting images it gets.

        >>> pool.replace("door", ostta.load(pool.backbone, ["ship", "frog"]))
        >>> pool.step({"door": image})["door"].best
        'frog'
        """
        with self._news:
            self._known(name)
        self._put(name, adapter, replace=True)

    # --- images -------------------------------------------------------------------------------------------------------
    def submit(self, name: str, image: PoolImage) -> Future[Prediction]:
        """Queue what `Adapter.step` takes, or a float tensor of views as `step_views` takes it. Refused when the queue is full.

        The future holds the prediction or the Error about the image. Its callbacks run on the pool's thread: keep them short.

        >>> with pool:
        ...     waiting = pool.submit("door", image)
        ...     print(waiting.result())
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        with self._news:
            (future,) = self._queued({name: image})
            return future

    def call(self, name: str, function: Callable[[Adapter], T], *, first: bool = False) -> Future[T]:
        """Have `function` called with the stream's adapter, in its turn among the stream's images; `first`: before all that wait.

        Unlike `held` it makes nobody wait: it runs where the steps do, between two of them. What is `first` is never refused by a full
        queue.

        >>> with pool:
        ...     waiting = pool.submit("door", image)
        ...     print(pool.call("door", lambda adapter: adapter.steps).result())
        1
        """
        future: Future[T] = Future()
        with self._news:
            self._refuse_closed()
            stream = self._known(name)
            if first:
                stream.waiting.appendleft((_Call(function), future))
            else:
                self._refuse_full(stream)
                stream.waiting.append((_Call(function), future))
            self._news.notify_all()
        return future

    def step(self, images: Mapping[str, PoolImage]) -> dict[str, Prediction]:
        """One image of each named stream, and their answers. One that cannot be read gives a prediction with the `reason`.

        >>> pool.step({"door": image})
        {'door': Prediction(cat, score 0.45 > 0.00, unreliable)}
        """
        with self._news:
            futures = dict(zip(images, self._queued(images), strict=True))
            # The pool's own thread comes here from a future's callback: nobody else would answer it.
            runs_itself = self._thread is None or self._thread is threading.current_thread()
        while runs_itself and not all(future.done() for future in futures.values()):
            self.run_once()
        return {name: _answer(future) for name, future in futures.items()}

    def run_once(self) -> int:
        """One batch: one image each of the streams whose turn it is. Returns how many images were answered.

        >>> waiting = [pool.submit("door", image) for _ in range(2)]
        >>> pool.run_once(), waiting[0].done(), waiting[1].done()
        (1, True, False)
        """
        with self._working:
            answered = [_Taken(*taken) for taken in self._pop_batch()]
            try:
                with learning():
                    self._step(answered)
            except BaseException as problem:
                # Whatever ends the batch, those who wait must hear of it; the caller gets what it cannot deal with itself.
                for taken in answered:
                    taken.result = taken.result or _ended(problem)
                if threading.current_thread() is not self._thread:
                    self._tell(answered)
                    raise
        # Not under the lock, and when all is done: callbacks run here, and may ask the pool for more.
        self._tell(answered)
        return len(answered)

    # --- the thread ---------------------------------------------------------------------------------------------------
    def start(self) -> Self:
        """Answer in the background from now on; a `with` block does so and closes the pool in the end.

        >>> pool.start().submit("door", image).result().label
        'cat'
        >>> pool.close()
        """
        with self._news:
            self._refuse_closed()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ostta-pool", daemon=True)
                self._thread.start()
        return self

    def close(self) -> None:
        """Answer what still waits, stop the thread, and take no more images. The streams stay, to be saved or removed.

        >>> waiting = pool.submit("door", image)
        >>> pool.close()
        >>> waiting.result().label
        'cat'
        """
        with self._news:
            self._closed = True
            self._news.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        while self.run_once():
            pass

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(self._has_work)
                if self._closed:
                    return
            self.run_once()

    def _has_work(self) -> bool:
        return self._closed or (not self._guests and any(stream.waiting for stream in self._streams.values()))

    @contextmanager
    def _standing(self) -> Iterator[None]:
        with self._news:
            self._guests += 1
        try:
            with self._working:
                yield
        finally:
            with self._news:
                self._guests -= 1
                self._news.notify_all()

    def _put(self, name: str, adapter: Adapter, replace: bool = False) -> None:
        if adapter.backbone is not self.backbone:
            raise Error(
                f"The stream {name!r} was made on a backbone of its own ({adapter.backbone.id}): "
                "make it with `ostta.load(pool.backbone, ...)`."
            )
        stream = PooledStream(name, adapter, can_share(adapter, self._tower))
        with self._standing(), self._news:
            twin = next((other.name for other in self._streams.values() if other.adapter is adapter), None)
            if twin is not None:
                raise Error(f"This adapter is in the pool already, as the stream {twin!r}: each stream needs its own.")
            if replace and name in self._streams:
                stream.waiting = self._streams[name].waiting
            else:
                self._refuse_known(name)
            self._streams[name] = stream

    def _queued(self, images: Mapping[str, PoolImage]) -> list[Future[Prediction]]:
        """All of the images, or none."""
        self._refuse_closed()
        for name in images:
            self._refuse_full(self._known(name))
        futures: list[Future[Prediction]] = [Future() for _ in images]
        for (name, image), future in zip(images.items(), futures, strict=True):
            self._streams[name].waiting.append((image, future))
        self._news.notify_all()
        return futures

    def _pop_batch(self) -> list[tuple[PooledStream, PoolImage | _Call, Future[Any]]]:
        """At most one image of a stream, so that their order is kept; those that were served go to the end of the line."""
        taken: list[tuple[PooledStream, PoolImage | _Call, Future[Any]]] = []
        with self._news:
            for stream in list(self._streams.values()):
                while stream.waiting and len(taken) < self.batch:
                    image, future = stream.waiting.popleft()
                    if future.set_running_or_notify_cancel():
                        taken.append((stream, image, future))
                        self._streams[stream.name] = self._streams.pop(stream.name)
                        break
        return taken

    def _step(self, answered: Sequence[_Taken]) -> None:
        with ExitStack() as used:
            seats: list[tuple[Seat, _Taken]] = []
            for taken in answered:
                if taken.stream.shares and not isinstance(taken.image, _Call):
                    try:
                        used.enter_context(taken.stream.adapter.in_use())
                        seats.append((Seat.of(taken.stream.adapter, taken.image), taken))
                    except Exception as problem:
                        taken.result = problem
            if seats:
                try:
                    step_together(self._tower, [seat for seat, _ in seats], self.batch)
                except Exception as problem:  # such as a lack of memory: said to those who wait, and the pool goes on
                    for seat, _ in seats:
                        seat.result = problem if seat.result is None else seat.result
                finally:
                    for seat, taken in seats:
                        taken.result = seat.result
        # Those that need the tower for themselves come last, so that the others are worked out together.
        for taken in answered:
            if isinstance(taken.image, _Call):
                taken.result = _called(taken.stream.adapter, taken.image)
            elif not taken.stream.shares:
                taken.result = _step_alone(taken.stream.adapter, taken.image)

    @staticmethod
    def _tell(answered: Sequence[_Taken]) -> None:
        for taken in answered:
            if isinstance(taken.result, Prediction):
                taken.future.set_result(taken.result)
            elif isinstance(taken.result, _Returned):
                taken.future.set_result(taken.result.value)
            else:
                taken.future.set_exception(taken.result)

    def _known(self, name: str) -> PooledStream:
        if name not in self._streams:
            raise Error(f"There is no stream {name!r}; there are {', '.join(sorted(self._streams)) or 'none yet'}.")
        return self._streams[name]

    def _refuse_full(self, stream: PooledStream) -> None:
        if len(stream.waiting) >= self.queue:
            raise Error(
                f"The stream {stream.name!r} has {self.queue} images waiting, the most that this pool keeps of one stream: "
                "wait for its answers, or leave images out."
            )

    def _refuse_known(self, name: str) -> None:
        if name in self._streams:
            raise Error(f"There is a stream {name!r} already: remove it first, or choose another name.")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Error("The pool is closed and takes no more images.")


def _step_alone(adapter: Adapter, image: PoolImage) -> Prediction | Exception:
    try:
        return adapter.step_views(image) if isinstance(image, torch.Tensor) else adapter.step(image)
    except Exception as problem:
        return problem


def _called(adapter: Adapter, call: _Call) -> _Returned | Exception:
    try:
        return _Returned(call.function(adapter))
    except Exception as problem:
        return problem


def _ended(problem: BaseException) -> Exception:
    """What those hear who wait for a batch that was ended from inside, such as by a `SystemExit` in somebody's tower."""
    if isinstance(problem, Exception):
        return problem
    return Error(f"The batch of this image was ended by {type(problem).__name__}; the stream is as before.")


def _answer(future: Future[Prediction]) -> Prediction:
    try:
        return future.result()
    except Error as problem:
        return unseen_prediction(str(problem))
