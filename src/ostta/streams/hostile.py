"""Streams that mislead adaptive methods, such as a camera with a covered lens.

The hostile part is followed by, or mixed with, a usual stream.

Unknown images that belong to no data set, such as black images, have a separate `Source` and a separate domain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from .mixing import (
    CHOOSE_DESIRED,
    CHOOSE_UNDESIRED,
    at_least_one,
    cycled,
    generator,
    interleaved,
    repetition_note,
    shuffled,
    unknown_counts,
)
from .stream import Domain, Numbers, SingleVisit, Source, Stream, Visit, identity_of

# Returns the score of the frozen model for each image of a source.
Scorer = Callable[[Source], NDArray[np.float64]]


class UnknownFirst(SingleVisit):
    """Only `images` unknown images first, then a usual stream of the known images and other unknown images."""

    def __init__(self, domain: Domain, images: int, *, ratio: float = 1.0, seed: int = 0) -> None:
        at_least_one("images", images)
        required, available = unknown_counts(domain.desired, domain.undesired, ratio)
        unknown = cycled(available, images + required, generator(seed, purpose=CHOOSE_UNDESIRED))
        first, rest = unknown[:images], unknown[images:]
        order = shuffled(np.arange(len(domain.desired)), rest, generator(seed))
        notes = repetition_note(available, len(unknown))
        super().__init__(
            "unknown_first", domain, np.concatenate([~first, order]), ratio, seed, notes=notes, images=images
        )


class OneClassFirst(SingleVisit):
    """Only `images` images of one known class first, then a usual stream. The seed selects the class.

    `usual` are the known images of the usual stream. The images of the class are drawn from the whole set, repeatedly
    if needed.
    """

    def __init__(self, domain: Domain, images: int, usual: Numbers, *, ratio: float = 1.0, seed: int = 0) -> None:
        at_least_one("images", images)
        labels, chance = np.asarray(domain.desired.labels), generator(seed, purpose=CHOOSE_DESIRED)
        classes = np.unique(labels)
        own = np.flatnonzero(labels == classes[int(chance.integers(len(classes)))])
        own = own[chance.permutation(len(own))]
        first = own[cycled(len(own), images, chance)]
        required, available = unknown_counts(domain.desired, domain.undesired, ratio, len(usual))
        unknown = cycled(available, required, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = np.concatenate([first, shuffled(usual, unknown, generator(seed))])
        super().__init__("one_class_first", domain, order, ratio, seed, images=images)


class SortedClasses(SingleVisit):
    """Class after class, each in random order, with unknown images at random positions."""

    def __init__(self, domain: Domain, *, ratio: float = 1.0, seed: int = 0) -> None:
        required, available = unknown_counts(domain.desired, domain.undesired, ratio)
        unknown = cycled(available, required, generator(seed, purpose=CHOOSE_UNDESIRED))
        mixed = generator(seed, purpose=CHOOSE_DESIRED).permutation(len(domain.desired))
        by_class = mixed[np.argsort(np.asarray(domain.desired.labels)[mixed], kind="stable")]
        super().__init__("sorted_classes", domain, interleaved(by_class, unknown, generator(seed)), ratio, seed)


class Covered(Stream):
    """The unknown images of each source in `covers`, such as a covered lens, then a usual stream."""

    def __init__(self, domain: Domain, covers: Sequence[Source], *, ratio: float = 1.0, seed: int = 0) -> None:
        required, available = unknown_counts(domain.desired, domain.undesired, ratio)
        unknown = cycled(available, required, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = shuffled(np.arange(len(domain.desired)), unknown, generator(seed))
        visits = [Visit(number, domain.desired, cover, ~np.arange(len(cover))) for number, cover in enumerate(covers)]
        visits.append(Visit(len(covers), domain.desired, domain.undesired, order))
        names = (*(cover.name for cover in covers), domain.name)
        sizes = [len(cover) for cover in covers]
        options = {"kind": "covered", "ratio": ratio, "seed": seed, "covers": sizes, "domain": dict(domain.options)}
        super().__init__(names, visits, options)


class Fooling(SingleVisit):
    """A usual stream with the unknown images that have the highest scores, selected from `pool` times as many.

    The selection is adversarial: `fools` returns the scores of the frozen model. No label is used.
    """

    def __init__(self, domain: Domain, fools: Scorer, *, pool: int, ratio: float = 1.0, seed: int = 0) -> None:
        at_least_one("pool", pool)
        required, available = unknown_counts(domain.desired, domain.undesired, ratio)
        unknown = np.zeros(0, np.int64)
        if domain.undesired is not None:
            unknown = np.argsort(-np.asarray(fools(domain.undesired)), kind="stable")[:required]
        order = shuffled(np.arange(len(domain.desired)), unknown, generator(seed))
        super().__init__("fooling", domain, order, ratio, seed, short_of=max(0, required - available), pool=pool)
        self._identity = partial(fooling_identity, domain, pool=pool, ratio=ratio, seed=seed)

    @cached_property
    def identity(self) -> str:
        """See `fooling_identity`."""
        return self._identity()


def fooling_identity(domain: Domain, *, pool: int, ratio: float, seed: int) -> str:
    """Return the identity of a `Fooling` stream without running a model.

    It covers all candidates instead of the selected images, which follow from the candidates, the weights and the class
    names.
    """
    known, unknown = (0 if side is None else len(side) for side in (domain.desired, domain.undesired))
    every = Visit(0, domain.desired, domain.undesired, np.concatenate([np.arange(known), ~np.arange(unknown)]))
    return identity_of(json.dumps(["fooling", pool, ratio, seed, domain.name, known, unknown]), [every])
