"""A random stream that scripts without ostta can make again: three permutations of one numpy generator."""

from __future__ import annotations

import numpy as np

from .mixing import at_least_one, check_desired, wanted_and_there
from .stream import Domain, Source, Stream, Visit

# First number of the generator's seed; the second is the seed of the stream.
_PURPOSE = 7


class Shuffled(Stream):
    """At most `images` known images and `ratio` times as many unknown images, all drawn at random, in random order.

    The generator is `numpy.random.default_rng([7, seed])`. Its first permutation draws the known images, the second the unknown
    images, the third is the order. If there are fewer unknown images than the ratio asks for, all of them are shown.
    `undesired` takes part in the second permutation even if the ratio is 0.
    """

    def __init__(
        self, domain: Domain, undesired: Source | None, images: int, *, ratio: float = 1.0, seed: int = 0
    ) -> None:
        check_desired(domain.desired)
        at_least_one("images", images)
        wanted_and_there(images, undesired, ratio)
        chance = np.random.default_rng([_PURPOSE, seed])
        known = chance.permutation(len(domain.desired))[:images]
        wanted = 0 if undesired is None else round(len(known) * ratio)
        unknown = chance.permutation(0 if undesired is None else len(undesired))[:wanted]
        order = np.concatenate([known, ~unknown])
        order = order[chance.permutation(len(order))]
        super().__init__(
            (domain.name,),
            (Visit(0, domain.desired, undesired, order),),
            {"kind": "shuffled", "images": images, "ratio": ratio, "seed": seed, "domain": dict(domain.options)},
            short_of=wanted - len(unknown),
        )
