"""Streams of one domain in runs of one class, as folders and cameras show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .mixing import Shuffled, SingleDomain
from .stream import Numbers, Stream, Visit

# First number of the seed of an arrangement; the second is the seed of the stream.
_PURPOSE = 11


class Arranged(Stream):
    """The images of a stream of one domain in runs of one class, unknown classes included.

    ordered: one run for each class, in random order. bursts: runs of `lengths` (smallest, largest) images of a class
    that is drawn uniformly for each run; the last run of a class may be shorter. Unknown images without class labels
    count as one class.

    The generator is `numpy.random.default_rng([11, seed])`, and `in_runs` is the recipe, so that scripts without ostta
    can reproduce the stream.
    """

    def __init__(
        self,
        stream: SingleDomain | Shuffled,
        arrangement: Literal["ordered", "bursts"],
        lengths: tuple[int, int],
        *,
        seed: int = 0,
    ) -> None:
        bursts = lengths if arrangement == "bursts" else None
        visit = stream.visits[0]
        places = in_runs(_classes(visit, stream.drawn), bursts, np.random.default_rng([_PURPOSE, seed]))
        options = {"kind": arrangement, "lengths": bursts, "seed": seed, "stream": stream.hash}
        visits = [replace(visit, order=stream.drawn[places])]
        super().__init__(stream.domains, visits, options, short_of=stream.short_of)


def in_runs(classes: NDArray[np.int64], lengths: tuple[int, int] | None, chance: np.random.Generator) -> Numbers:
    """Return the positions of `classes` in runs of one class; `lengths` of None is one run for each class."""
    queues = {kind: chance.permutation(np.flatnonzero(classes == kind)) for kind in np.unique(classes).tolist()}
    if lengths is None:
        return np.concatenate([queues[kind] for kind in chance.permutation(list(queues)).tolist()])
    runs = []
    while queues:
        kind = int(chance.choice(list(queues)))
        run, queues[kind] = np.split(queues[kind], [int(chance.integers(lengths[0], lengths[1] + 1))])
        runs.append(run)
        if not len(queues[kind]):
            del queues[kind]
    return np.concatenate(runs)


def _classes(visit: Visit, drawn: Numbers) -> NDArray[np.int64]:
    """Return the class that each image shows. The classes of unknown images follow those of known images."""
    known = visit.desired.labels[drawn[drawn >= 0]]
    if visit.undesired is None:
        return known
    # The label of an image without a class is -1.
    return np.concatenate([known, visit.undesired.labels[~drawn[drawn < 0]] + known.max() + 2])
