"""A set whose order matters, such as CCC: the order is kept, and unknown images come in between."""

from __future__ import annotations

import numpy as np

from .mixing import CHOOSE_UNDESIRED, check_desired, cycled, generator, interleaved, wanted_and_there
from .stream import Domain, Stream, Visit


class Ordered(Stream):
    """All desired images in their own order, undesired ones at random places between, in rounds if need be (D26)."""

    def __init__(self, domain: Domain, *, ratio: float = 1.0, seed: int = 0) -> None:
        desired, undesired = domain.desired, domain.undesired
        check_desired(desired)
        wanted, there = wanted_and_there(len(desired), undesired, ratio)
        unknown = cycled(there, wanted, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = interleaved(np.arange(len(desired)), unknown, generator(seed))
        visit = Visit(0, desired, undesired, order)
        super().__init__(
            (domain.name,),
            (visit,),
            {"kind": "ordered", "ratio": ratio, "seed": seed, "domain": dict(domain.options)},
            short_of=wanted - len(unknown),
            notes=again(there, len(unknown)),
        )


def again(available: int, taken: int) -> list[str]:
    """The sentence about undesired images that come more than once."""
    if taken <= available:
        return []
    return [
        f"The undesired set has {available} images, and {taken} are shown: "
        f"each comes about {taken / available:.1f} times."
    ]
