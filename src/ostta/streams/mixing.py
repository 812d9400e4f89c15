"""Orders of images, drawn subsets, and the streams of a single domain that are built from them.

In an order, n >= 0 is known image n, and ~n < 0 is unknown image n.

All random numbers come from the PCG64 generators of this module, so that a seed gives the same order everywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.types import Error
from ..data.dataset import balanced
from .stream import Domain, Numbers, SingleVisit, Source, Stream, Visit, update_with_drawn

# Purposes of a generator: the order in a visit, the selection of images, the corruptions of a path, and the subset of a
# set that a stream uses. For visit 0 and ORDER the generator is that of the plain seed, so that the first visit of
# every scenario has the order of a single domain.
ORDER, CHOOSE_DESIRED, CHOOSE_UNDESIRED, PATH, DRAW_DESIRED, DRAW_UNDESIRED = range(6)


def generator(seed: int, visit: int = 0, purpose: int = ORDER) -> np.random.Generator:
    """Return the generator of a seed for one purpose in one visit, independent of all other generators."""
    if seed < 0:
        raise invalid(f"`seed` must be an integer of at least 0, not {seed}.")
    return np.random.Generator(np.random.PCG64([seed, visit, purpose]))


def invalid(message: str) -> Error:
    """Return the error of a stream that cannot be built."""
    return Error(message, code="stream-invalid")


def unknown_counts(
    desired: Source, undesired: Source | None, ratio: float, known: int | None = None
) -> tuple[int, int]:
    """Return the number of unknown images that the ratio requires, and the number available.

    `known` is the number of known images in the stream, by default all of `desired`. The published code keeps all known
    images and takes int(ratio * known) unknown images (D23). A ratio of 0 is the closed set.
    """
    if not len(desired):
        raise invalid(f"{desired.name} has no images.")
    if not 0 <= ratio < math.inf:
        raise invalid(f"`ratio` is the number of unknown images per known image: it must be at least 0, not {ratio}.")
    known = len(desired) if known is None else known
    return (0, 0) if undesired is None else (int(known * ratio), len(undesired))


def at_least_one(name: str, value: int) -> None:
    """Raise an Error unless a count is at least one."""
    if value < 1:
        raise invalid(f"`{name}` must be an integer of at least 1, not {value}.")


def repetition_note(available: int, shown: int) -> list[str]:
    """Return the note about unknown images that are shown more than once."""
    if shown <= available:
        return []
    return [
        f"The unknown set has {available} images, and {shown} are shown: each is shown about {shown / available:.1f} "
        "times."
    ]


# --- orders -----------------------------------------------------------------------------------------------------------
def shuffled(desired: Numbers, undesired: Numbers, chance: np.random.Generator) -> Numbers:
    """Return both sides in one uniform random order."""
    both = np.concatenate([desired, ~undesired])
    return both[chance.permutation(len(both))]


def interleaved(desired: Numbers, undesired: Numbers, chance: np.random.Generator) -> Numbers:
    """Return both sides in their given order, with the unknown images at random positions."""
    places = np.sort(chance.permutation(len(desired) + len(undesired))[: len(undesired)])
    return np.insert(desired, places - np.arange(len(places)), ~undesired)


def cycled(count: int, length: int, chance: np.random.Generator) -> Numbers:
    """Return `length` numbers below `count` in random order; if `length` is larger than `count`, in several rounds.

    Each round has its own random order, and every number occurs once per round.
    """
    rounds = [chance.permutation(min(count, length)) for _ in range(math.ceil(length / count) if count else 0)]
    return np.concatenate(rounds)[:length] if rounds else np.zeros(0, np.int64)


def visit_orders(desired: Numbers, undesired: Numbers, sizes: Sequence[int], seed: int) -> list[Numbers]:
    """Split both sides into visits in proportion to `sizes`, rounded down, and shuffle each visit."""
    reached = np.concatenate([[0], np.cumsum(sizes)])
    known, unknown = (np.split(side, reached[1:-1] * len(side) // reached[-1]) for side in (desired, undesired))
    return [shuffled(known[visit], unknown[visit], generator(seed, visit)) for visit in range(len(sizes))]


# --- drawn subsets ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Drawn:
    """The images `numbers` of the set `whole`.

    Records hold the number in the whole set, so that runs can be compared.
    """

    whole: Source
    numbers: Numbers

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.whole.labels[self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def image(self, index: int) -> Image.Image:
        return self.whole.image(int(self.numbers[index]))


def draw(source: Source, count: int, seed: int, *, desired: bool) -> Drawn:
    """Draw `count` images of `source`, balanced over the classes, in the order of the set.

    If there are fewer images, all are drawn. A smaller `count` with the same seed draws a subset. The draw does not
    depend on the corruption of the set.
    """
    if count < 0:
        raise invalid(f"{count} images cannot be drawn from {source.name}.")
    chance = generator(seed, purpose=DRAW_DESIRED if desired else DRAW_UNDESIRED)
    numbers = balanced(np.asarray(source.labels), count, chance)
    return Drawn(source.whole, source.numbers[numbers]) if isinstance(source, Drawn) else Drawn(source, numbers)


# --- streams of one domain --------------------------------------------------------------------------------------------
# First number of the seed of `Shuffled`; the second is the seed of the stream.
_PURPOSE = 7


class SingleDomain(Stream):
    """All known images, and `ratio` times as many unknown images, in one seeded permutation.

    The unknown images are the first ones of their set. `drawn` are the images before the permutation.
    """

    def __init__(self, desired: Source, undesired: Source | None, *, ratio: float = 1.0, seed: int = 0) -> None:
        required, available = unknown_counts(desired, undesired, ratio)
        shown = min(required, available)
        self.ratio, self.seed = ratio, seed
        self.drawn = np.concatenate([np.arange(len(desired)), ~np.arange(shown)])
        self._numbers = generator(seed).permutation(len(self.drawn))
        visit = Visit(0, desired, undesired, self.drawn[self._numbers])
        super().__init__((desired.name,), (visit,), {}, short_of=required - shown)

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


class Ordered(SingleVisit):
    """All known images in the order of their set, such as CCC, with unknown images at random positions.

    If there are too few unknown images, they are repeated (D26).
    """

    def __init__(self, domain: Domain, *, ratio: float = 1.0, seed: int = 0) -> None:
        required, available = unknown_counts(domain.desired, domain.undesired, ratio)
        unknown = cycled(available, required, generator(seed, purpose=CHOOSE_UNDESIRED))
        order = interleaved(np.arange(len(domain.desired)), unknown, generator(seed))
        notes = repetition_note(available, len(unknown))
        super().__init__("ordered", domain, order, ratio, seed, short_of=required - len(unknown), notes=notes)


class Shuffled(SingleVisit):
    """At most `images` known images and `ratio` times as many unknown images, drawn at random, in random order.

    The generator is `numpy.random.default_rng([7, seed])`. Its first permutation draws the known images, the second the
    unknown images, and the third is the order, so that scripts without ostta can reproduce the stream. If there are
    fewer unknown images than the ratio requires, all of them are shown. The second permutation covers `undesired` even
    if the ratio is 0. `drawn` are the images before the third permutation.
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
        self.drawn = np.concatenate([known, ~unknown])
        order = self.drawn[chance.permutation(len(self.drawn))]
        domain = replace(domain, undesired=undesired)
        super().__init__("shuffled", domain, order, ratio, seed, short_of=required - len(unknown), images=images)
