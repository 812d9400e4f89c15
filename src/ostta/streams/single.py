"""Streams of one domain: a permutation, a set in its own order, and a stream that other scripts can reproduce."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from .mixing import (
    CHOOSE_UNDESIRED,
    at_least_one,
    cycled,
    generator,
    interleaved,
    repetition_note,
    unknown_counts,
)
from .stream import Domain, Source, Stream, Visit, update_with_drawn

# First number of the seed of `Shuffled`; the second is the seed of the stream.
_PURPOSE = 7


class SingleDomain(Stream):
    """All known images, and `ratio` times as many unknown images, in one seeded permutation.

    The unknown images are the first ones of their set.
    """

    def __init__(self, desired: Source, undesired: Source | None, *, ratio: float = 1.0, seed: int = 0) -> None:
        required, available = unknown_counts(desired, undesired, ratio)
        taken = min(required, available)
        self.ratio, self.seed = ratio, seed
        self._numbers = generator(seed).permutation(len(desired) + taken)
        order = np.where(self._numbers < len(desired), self._numbers, ~(self._numbers - len(desired)))
        visit = Visit(0, desired, undesired, order)
        super().__init__((desired.name,), (visit,), {}, short_of=required - taken)

    @property
    def hash(self) -> str:
        """SHA-256 over names, sizes and order, not over pixels, in the form of the recorded runs."""
        visit = self.visits[0]
        names = [visit.desired.name, visit.undesired.name if visit.undesired else None]
        parts = [names, self.desired_count, self.undesired_count, self.ratio, self.seed]
        digest = hashlib.sha256(json.dumps(parts).encode())
        digest.update(self._numbers.astype("<i8").tobytes())
        update_with_drawn(digest, visit)
        return digest.hexdigest()


class Ordered(Stream):
    """All known images in the order of their set, such as CCC, with unknown images at random positions.

    If there are too few unknown images, they are repeated (D26).
    """

    def __init__(self, domain: Domain, *, ratio: float = 1.0, seed: int = 0) -> None:
        required, available = unknown_counts(domain.desired, domain.undesired, ratio)
        unknown = cycled(available, required, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = interleaved(np.arange(len(domain.desired)), unknown, generator(seed))
        super().__init__(
            (domain.name,),
            (Visit(0, domain.desired, domain.undesired, order),),
            {"kind": "ordered", "ratio": ratio, "seed": seed, "domain": dict(domain.options)},
            short_of=required - len(unknown),
            notes=repetition_note(available, len(unknown)),
        )


class Shuffled(Stream):
    """At most `images` known images and `ratio` times as many unknown images, drawn at random, in random order.

    The generator is `numpy.random.default_rng([7, seed])`. Its first permutation draws the known images, the second the
    unknown images, and the third is the order, so that scripts without ostta can reproduce the stream. If there are
    fewer unknown images than the ratio requires, all of them are shown. The second permutation covers `undesired` even
    if the ratio is 0.
    """

    def __init__(
        self, domain: Domain, undesired: Source | None, images: int, *, ratio: float = 1.0, seed: int = 0
    ) -> None:
        at_least_one("images", images)
        unknown_counts(domain.desired, undesired, ratio)
        chance = np.random.default_rng([_PURPOSE, seed])
        known = chance.permutation(len(domain.desired))[:images]
        required = 0 if undesired is None else round(len(known) * ratio)
        unknown = chance.permutation(0 if undesired is None else len(undesired))[:required]
        order = np.concatenate([known, ~unknown])
        order = order[chance.permutation(len(order))]
        super().__init__(
            (domain.name,),
            (Visit(0, domain.desired, undesired, order),),
            {"kind": "shuffled", "images": images, "ratio": ratio, "seed": seed, "domain": dict(domain.options)},
            short_of=required - len(unknown),
        )
