"""Base class of all scenarios: visits to domains, stored as image numbers. Images are read one at a time, or ahead."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.types import Error

UNDESIRED = -1
# Replaces an image that is not read.
NO_IMAGE = Image.new("RGB", (1, 1))

# Images that `prefetched` reads ahead: enough to cover an image that takes several times longer than the others.
DEPTH = 8

Item = TypeVar("Item")
Numbers = NDArray[np.int64]
# Returns whether an image must be read, from its domain, whether it is known, and its number in its data set.
Reads = Callable[[int, bool, int], bool]


class Source(Protocol):
    """Images by number with class labels, such as the data sets of `data.open_dataset`."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> NDArray[np.int64]: ...

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image: ...


def drawn_numbers(source: Source) -> Numbers | None:
    """Return the numbers of drawn images in the whole set; None if the source is a whole set."""
    return getattr(source, "numbers", None)


@dataclass(frozen=True, slots=True)
class Sample:
    """One image of a stream. `label` is its class, or -1 for an unknown image.

    `source` and `index` are the name of its data set and its number there, or its row in a feature file. `domain` is
    an index into the `domains` of the stream.
    """

    image: Image.Image
    label: int
    source: str
    index: int
    domain: int = 0


@dataclass(frozen=True, eq=False)
class Domain:
    """One condition, such as snow: its known images, and the unknown images that are mixed with them.

    `options`, such as corruption and severity, are part of the hash of a stream.
    """

    name: str
    desired: Source
    undesired: Source | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Visit:
    """Part of a stream in one domain. In `order`, n >= 0 is known image n, and ~n < 0 is unknown image n."""

    domain: int
    desired: Source
    undesired: Source | None
    order: Numbers

    def samples(self, start: int, reads: Reads | None = None) -> Iterator[Sample]:
        """Yield the samples from position `start`.

        A black image replaces each image for which `reads` returns False.
        """
        desired_labels = self.desired.labels
        numbers = drawn_numbers(self.desired), None if self.undesired is None else drawn_numbers(self.undesired)
        for place in self.order[start:].tolist():
            index, known = (place, True) if place >= 0 else (~place, False)
            source = self.desired if known else self.undesired
            assert source is not None
            label = int(desired_labels[index]) if known else UNDESIRED
            drawn = numbers[0] if known else numbers[1]
            number = index if drawn is None else int(drawn[index])
            image = source.image(index) if reads is None or reads(self.domain, known, number) else NO_IMAGE
            rows = getattr(getattr(source, "whole", source), "rows", ())
            yield Sample(image, label, source.name, rows[number] if rows else number, self.domain)


class Stream:
    """The images of a scenario: `visits` in order, each in one of `domains`.

    options:   everything that determines the order, for the hash.
    short_of:  number of unknown images that the ratio requires but that are missing.
    notes:     remarks for readers of figures on this stream.
    """

    def __init__(
        self,
        domains: Sequence[str],
        visits: Sequence[Visit],
        options: Mapping[str, Any],
        *,
        short_of: int = 0,
        notes: Sequence[str] = (),
    ) -> None:
        self.domains, self.visits, self.options = tuple(domains), tuple(visits), dict(options)
        self.desired_count = sum(int((visit.order >= 0).sum()) for visit in visits)
        self.undesired_count = sum(len(visit.order) for visit in visits) - self.desired_count
        self.short_of = short_of
        missing = [f"The stream has {short_of} unknown images fewer than the ratio requires."] if short_of else []
        self.notes = (*missing, *notes)

    def __len__(self) -> int:
        return self.desired_count + self.undesired_count

    def __iter__(self) -> Iterator[Sample]:
        return self.starting_at(0)

    def starting_at(self, position: int, reads: Reads | None = None) -> Iterator[Sample]:
        """Yield the samples from `position`.

        Earlier images, and images for which `reads` returns False, are not read.
        """
        if not 0 <= position <= len(self):
            message = f"The stream has {len(self)} images, so it cannot start at position {position}."
            raise Error(message, code="stream-invalid")
        return self._from(position, reads)

    def _from(self, position: int, reads: Reads | None) -> Iterator[Sample]:
        for visit in self.visits:
            if position < len(visit.order):
                yield from visit.samples(position, reads)
            position = max(0, position - len(visit.order))

    @property
    def hash(self) -> str:
        """SHA-256 over options, domains, names, sizes, order and drawn images, not over pixels.

        It identifies only the order. `identity` also identifies the images.
        """
        digest = hashlib.sha256(json.dumps([self.options, self.domains], sort_keys=True).encode())
        for visit in self.visits:
            sides = [[side.name, len(side)] for side in (visit.desired, visit.undesired) if side is not None]
            digest.update(json.dumps([visit.domain, sides]).encode())
            digest.update(visit.order.astype("<i8").tobytes())
            update_with_drawn(digest, visit)
        return digest.hexdigest()

    @cached_property
    def identity(self) -> str:
        """SHA-256 over the order and the shown images: their origin, corruption, severity, labels and content.

        Two runs can be compared, and a result can be reused, only if this value is equal.
        """
        return identity_of(self.hash, self.visits)


class SingleVisit(Stream):
    """A stream of one visit to one domain. `options` are the options of the scenario `kind`."""

    def __init__(
        self,
        kind: str,
        domain: Domain,
        order: Numbers,
        ratio: float,
        seed: int,
        *,
        short_of: int = 0,
        notes: Sequence[str] = (),
        **options: int,
    ) -> None:
        visit = Visit(0, domain.desired, domain.undesired, order)
        every = {"kind": kind, "ratio": ratio, "seed": seed, "domain": dict(domain.options), **options}
        super().__init__((domain.name,), (visit,), every, short_of=short_of, notes=notes)


def identity_of(order: str, visits: Sequence[Visit]) -> str:
    """Return a hash of an order and of the images that are shown in `visits`."""
    shown: dict[int, tuple[Source, list[Numbers]]] = {}
    for visit in visits:
        for side, numbers in (
            (visit.desired, visit.order[visit.order >= 0]),
            (visit.undesired, ~visit.order[visit.order < 0]),
        ):
            if side is not None:
                whole, numbers = _whole(side, numbers)
                shown.setdefault(id(whole), (whole, []))[1].append(numbers)
    digest = hashlib.sha256(order.encode())
    for whole, parts in shown.values():
        numbers = np.unique(np.concatenate(parts))
        digest.update(numbers.astype("<i8").tobytes())
        # Sources other than data sets have no files; the order and the options identify them.
        if hasattr(whole, "fingerprint"):
            digest.update(whole.fingerprint(numbers).encode())
    return digest.hexdigest()


def _whole(source: Source, numbers: Numbers) -> tuple[Source, Numbers]:
    """Return the data set that a source draws from, and the numbers of the images in it."""
    if hasattr(source, "clean"):
        return _whole(source.clean, numbers)
    drawn = drawn_numbers(source)
    return (source.whole, drawn[numbers]) if hasattr(source, "whole") and drawn is not None else (source, numbers)


def update_with_drawn(digest: hashlib._Hash, visit: Visit) -> None:
    """Add the numbers of drawn images. Streams of whole sets keep the hash of earlier versions."""
    for side in (visit.desired, visit.undesired):
        numbers = None if side is None else drawn_numbers(side)
        if side is not None and numbers is not None:
            digest.update(json.dumps(["drawn", side.name, len(numbers)]).encode())
            digest.update(numbers.astype("<i8").tobytes())


def numbered_names(names: Sequence[str]) -> list[str]:
    """Return `names` with a number after repeated ones: snow, fog, snow (2)."""
    counts = Counter[str]()
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return numbered


# --- reading ahead ----------------------------------------------------------------------------------------------------
def prefetched(items: Iterable[Item], depth: int = DEPTH) -> Iterator[Item]:
    """Yield `items` in order, computed by a thread that is at most `depth` items ahead.

    An exception of the thread is raised at the position of its item. If the consumer stops early, the thread stops.

    Reading, decoding and most array operations release the interpreter lock. Compared with a process that sends images
    through a pipe, a thread has less overhead per image, does not require picklable sources, and works the same on
    every system.
    """
    room, ready, stopped = Semaphore(depth), SimpleQueue[tuple[list[Item], BaseException | None]](), Event()

    def produce() -> None:
        try:
            waiting = iter(items)
            while True:
                room.acquire()
                if stopped.is_set():
                    return
                # In a list that the consumer empties, because a local variable would keep the image alive.
                ready.put(([next(waiting)], None))
        except StopIteration:
            ready.put(([], None))
        except BaseException as problem:
            ready.put(([], problem))

    worker = Thread(target=produce, name="ostta-prefetch", daemon=True)
    worker.start()
    try:
        while True:
            holder, problem = ready.get()
            if problem is not None:
                raise problem
            if not holder:
                return
            room.release()
            yield holder.pop()
    finally:
        stopped.set()
        room.release()
        worker.join()
