"""The single-domain scenario: desired and undesired images in one seeded permutation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.types import Error

UNDESIRED = -1


class Source(Protocol):
    """Images by number, each with the number of its class: what `data.open_dataset` gives."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> NDArray[np.int64]: ...

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One image of a stream; `label` is its class, or -1 for undesired. `source` and `index` say where it came from."""

    image: Image.Image
    label: int
    source: str
    index: int


class SingleDomain:
    """All of `desired` and `ratio` times as many of `undesired`, from its start, as far as they reach."""

    def __init__(self, desired: Source, undesired: Source | None, *, ratio: float = 1.0, seed: int = 0) -> None:
        if ratio < 0:
            raise Error(f"`ratio` is the number of undesired images per desired one, at least 0, not {ratio}.")
        if not len(desired):
            raise Error(f"{desired.name} has no images.")
        self.desired, self.undesired = desired, undesired
        self.ratio, self.seed = ratio, seed
        self.desired_count = len(desired)
        wanted = int(len(desired) * ratio)
        self.undesired_count = 0 if undesired is None else min(wanted, len(undesired))
        self.short_of = 0 if undesired is None else wanted - self.undesired_count
        self.order = np.random.default_rng(seed).permutation(self.desired_count + self.undesired_count)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Sample]:
        return self.starting_at(0)

    def starting_at(self, position: int) -> Iterator[Sample]:
        """The stream from `position` on."""
        for number in self.order[position:]:
            index = int(number)
            if index < self.desired_count:
                label = int(self.desired.labels[index])
                yield Sample(self.desired.image(index), label, self.desired.name, index)
            else:
                assert self.undesired is not None
                index -= self.desired_count
                yield Sample(self.undesired.image(index), UNDESIRED, self.undesired.name, index)

    @property
    def hash(self) -> str:
        """SHA-256 over names, sizes and order; not over pixels."""
        names = [self.desired.name, self.undesired.name if self.undesired else None]
        parts = [names, self.desired_count, self.undesired_count, self.ratio, self.seed]
        digest = hashlib.sha256(json.dumps(parts).encode())
        digest.update(self.order.astype("<i8").tobytes())
        return digest.hexdigest()
