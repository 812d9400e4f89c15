"""The base of every scenario: visits to domains, held as the numbers of images. Pixels are read one image at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.types import Error

UNDESIRED = -1
# In the place of an image that is not read.
NO_IMAGE = Image.new("RGB", (1, 1))

Numbers = NDArray[np.int64]
# Whether an image is to be read: by its domain, whether it is a desired one, and its number in its data set.
Reads = Callable[[int, bool, int], bool]


class Source(Protocol):
    """Images by number, each with the number of its class: what `data.open_dataset` gives."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> NDArray[np.int64]: ...

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image: ...


def drawn_numbers(source: Source) -> Numbers | None:
    """The numbers of a source's images in the whole set that they were drawn from; None where they are the set's own."""
    return getattr(source, "numbers", None)


@dataclass(frozen=True, slots=True)
class Sample:
    """One image of a stream; `label` is its class, or -1 for undesired. `source` and `index` say where it came from.

    `domain` is the number of its domain in the stream's `domains`.
    """

    image: Image.Image
    label: int
    source: str
    index: int
    domain: int = 0


@dataclass(frozen=True, eq=False)
class Domain:
    """One condition, such as snow: the desired images under it, and the unknown images that come with them.

    `options` are what else tells it apart from others, such as corruption and severity; they enter the hash of a
    stream.
    """

    name: str
    desired: Source
    undesired: Source | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Visit:
    """A stretch of a stream in one domain. In `order`, n >= 0 is desired image n, and ~n < 0 is undesired image n."""

    domain: int
    desired: Source
    undesired: Source | None
    order: Numbers

    def samples(self, start: int, reads: Reads | None = None) -> Iterator[Sample]:
        """From place `start` on; a black one stands for each image that `reads` says no to."""
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
            yield Sample(image, label, source.name, number, self.domain)


class Stream:
    """A scenario put together: `visits` in order, each in one of `domains`.

    `options` are all that the order was made from, for the hash. `short_of` is by how many images the undesired side
    falls short of the ratio asked for; `notes` are sentences that a reader of figures must be told.
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
        missing = [f"The undesired side is {short_of} images short of the ratio asked for."] if short_of else []
        self.notes = (*missing, *notes)

    def __len__(self) -> int:
        return self.desired_count + self.undesired_count

    def __iter__(self) -> Iterator[Sample]:
        return self.starting_at(0)

    def starting_at(self, position: int, reads: Reads | None = None) -> Iterator[Sample]:
        """The stream from `position` on; nothing before it is read, nor any image that `reads` says no to."""
        if not 0 <= position <= len(self):
            raise Error(f"The stream has {len(self)} images, so it cannot start at position {position}.")
        return self._from(position, reads)

    def _from(self, position: int, reads: Reads | None) -> Iterator[Sample]:
        for visit in self.visits:
            if position < len(visit.order):
                yield from visit.samples(position, reads)
            position = max(0, position - len(visit.order))

    @property
    def hash(self) -> str:
        """SHA-256 over options, domains, names, sizes, order, and which images were drawn; not over pixels.

        It identifies the order only. `identity` tells whether two streams show the same images.
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
    """Return the data set behind a source and the numbers that the images have in it."""
    if hasattr(source, "clean"):
        return _whole(source.clean, numbers)
    drawn = drawn_numbers(source)
    return (source.whole, drawn[numbers]) if hasattr(source, "whole") and drawn is not None else (source, numbers)


def update_with_drawn(digest: hashlib._Hash, visit: Visit) -> None:
    """Take in which images were drawn. Where none were, nothing: such streams keep the hashes they have always had."""
    for side in (visit.desired, visit.undesired):
        numbers = None if side is None else drawn_numbers(side)
        if side is not None and numbers is not None:
            digest.update(json.dumps(["drawn", side.name, len(numbers)]).encode())
            digest.update(numbers.astype("<i8").tobytes())


def told_apart(names: Sequence[str]) -> list[str]:
    """`names`, with a number behind those that have come before: snow, fog, snow (2)."""
    seen: dict[str, int] = {}
    apart = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        apart.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return apart
