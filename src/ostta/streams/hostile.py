"""Streams that mislead whatever adapts to them: what a camera sees on a bad day. Each ends, or goes on, as a usual stream does.

An undesired image that no data set has, such as a black one, is a `Source` of its own, and its stretch a domain of its own.
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
    check_desired,
    cycled,
    generator,
    interleaved,
    shuffled,
    wanted_and_there,
)
from .ordered import again
from .stream import Domain, Numbers, Source, Stream, Visit, identity_of

# Of each image of a source, how much the frozen model takes it for one of the classes.
Fools = Callable[[Source], NDArray[np.float64]]


class UnknownFirst(Stream):
    """Nothing but `images` undesired ones, then a usual stream of the desired images and other undesired ones."""

    def __init__(self, domain: Domain, images: int, *, ratio: float = 1.0, seed: int = 0) -> None:
        check_desired(domain.desired)
        at_least_one("images", images)
        wanted, there = wanted_and_there(len(domain.desired), domain.undesired, ratio)
        unknown = cycled(there, images + wanted, generator(seed, purpose=CHOOSE_UNDESIRED))
        first, rest = unknown[:images], unknown[images:]
        order = shuffled(np.arange(len(domain.desired)), rest, generator(seed))
        _finish(self, "unknown_first", domain, np.concatenate([~first, order]), {"images": images}, ratio, seed)
        self.notes = (*self.notes, *again(there, len(unknown)))


class OneClassFirst(Stream):
    """Nothing but `images` of one desired class, then a usual stream. The seed says which class.

    `usual` are the desired images of the usual stream; those of the class come from all of the set, in rounds if need be.
    """

    def __init__(self, domain: Domain, images: int, usual: Numbers, *, ratio: float = 1.0, seed: int = 0) -> None:
        check_desired(domain.desired)
        at_least_one("images", images)
        labels, chance = np.asarray(domain.desired.labels), generator(seed, purpose=CHOOSE_DESIRED)
        classes = np.unique(labels)
        own = np.flatnonzero(labels == classes[int(chance.integers(len(classes)))])
        own = own[chance.permutation(len(own))]
        first = own[cycled(len(own), images, chance)]
        wanted, there = wanted_and_there(len(usual), domain.undesired, ratio)
        unknown = cycled(there, wanted, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = np.concatenate([first, shuffled(usual, unknown, generator(seed))])
        _finish(self, "one_class_first", domain, order, {"images": images}, ratio, seed)


class SortedClasses(Stream):
    """Class after class, each in random order, with undesired images at random places all along."""

    def __init__(self, domain: Domain, *, ratio: float = 1.0, seed: int = 0) -> None:
        check_desired(domain.desired)
        wanted, there = wanted_and_there(len(domain.desired), domain.undesired, ratio)
        unknown = cycled(there, wanted, generator(seed, purpose=CHOOSE_UNDESIRED))
        mixed = generator(seed, purpose=CHOOSE_DESIRED).permutation(len(domain.desired))
        by_class = mixed[np.argsort(np.asarray(domain.desired.labels)[mixed], kind="stable")]
        _finish(self, "sorted_classes", domain, interleaved(by_class, unknown, generator(seed)), {}, ratio, seed)


class Covered(Stream):
    """What a covered lens shows, each of `covers` in its turn, and then a usual stream. All of it is undesired."""

    def __init__(self, domain: Domain, covers: Sequence[Source], *, ratio: float = 1.0, seed: int = 0) -> None:
        check_desired(domain.desired)
        wanted, there = wanted_and_there(len(domain.desired), domain.undesired, ratio)
        unknown = cycled(there, wanted, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = shuffled(np.arange(len(domain.desired)), unknown, generator(seed))
        visits = [Visit(number, domain.desired, cover, ~np.arange(len(cover))) for number, cover in enumerate(covers)]
        visits.append(Visit(len(covers), domain.desired, domain.undesired, order))
        names = (*(cover.name for cover in covers), domain.name)
        sizes = [len(cover) for cover in covers]
        options = {"kind": "covered", "ratio": ratio, "seed": seed, "covers": sizes, "domain": dict(domain.options)}
        super().__init__(names, visits, options)


class Fooling(Stream):
    """A usual stream whose undesired images are those that fool the score most, of `pool` times as many.

    An adversarial choice of the stream's maker: `fools` asks the frozen model, and no label takes part.
    """

    def __init__(self, domain: Domain, fools: Fools, *, pool: int, ratio: float = 1.0, seed: int = 0) -> None:
        check_desired(domain.desired)
        at_least_one("pool", pool)
        wanted, there = wanted_and_there(len(domain.desired), domain.undesired, ratio)
        unknown = np.zeros(0, np.int64)
        if domain.undesired is not None:
            unknown = np.argsort(-np.asarray(fools(domain.undesired)), kind="stable")[:wanted]
        order = shuffled(np.arange(len(domain.desired)), unknown, generator(seed))
        _finish(self, "fooling", domain, order, {"pool": pool}, ratio, seed, short_of=wanted - min(wanted, there))
        self._identity = partial(fooling_identity, domain, pool=pool, ratio=ratio, seed=seed)

    @cached_property
    def identity(self) -> str:
        """As `fooling_identity`."""
        return self._identity()


def fooling_identity(domain: Domain, *, pool: int, ratio: float, seed: int) -> str:
    """Return the identity of a `Fooling` stream without asking a model.

    It covers all candidates instead of the chosen images. The choice follows from the candidates, the weights and the class names.
    """
    known, unknown = (0 if side is None else len(side) for side in (domain.desired, domain.undesired))
    every = Visit(0, domain.desired, domain.undesired, np.concatenate([np.arange(known), ~np.arange(unknown)]))
    return identity_of(json.dumps(["fooling", pool, ratio, seed, domain.name, known, unknown]), [every])


def _finish(
    stream: Stream,
    kind: str,
    domain: Domain,
    order: Numbers,
    options: dict[str, int],
    ratio: float,
    seed: int,
    short_of: int = 0,
) -> None:
    every = {"kind": kind, "ratio": ratio, "seed": seed, "domain": dict(domain.options), **options}
    visit = Visit(0, domain.desired, domain.undesired, order)
    Stream.__init__(stream, (domain.name,), (visit,), every, short_of=short_of)
