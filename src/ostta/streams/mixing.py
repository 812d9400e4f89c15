"""Orders of images, as numbers. In an order, n >= 0 is known image n, and ~n < 0 is unknown image n.

All random numbers come from PCG64 generators that are defined here, so that a seed gives the same order everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.sampling import balanced
from ..core.types import Error
from .stream import Numbers, Source

# Purposes of a generator: the order in a visit, the selection of images, the corruptions of a path, and the images of a
# set that a stream has at all. For visit 0 and ORDER it is the generator of the plain seed, so that the first visit of
# every scenario has the order of a single domain.
ORDER, CHOOSE_DESIRED, CHOOSE_UNDESIRED, PATH, DRAW_DESIRED, DRAW_UNDESIRED = range(6)


def generator(seed: int, visit: int = 0, purpose: int = ORDER) -> np.random.Generator:
    """Return the generator of a seed for one purpose in one visit, independent of all others."""
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


def spread(total: int, sizes: Sequence[int]) -> Numbers:
    """Return the bounds that split `total` items in proportion to `sizes`, each rounded down."""
    reached = np.concatenate([[0], np.cumsum(sizes)])
    return reached * total // max(int(reached[-1]), 1)


# --- drawn subsets ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Drawn:
    """The images `numbers` of the set `whole`.

    Records have the number in the whole set, so that runs can be compared.
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
    taken = balanced(np.asarray(source.labels), count, chance)
    return Drawn(source.whole, source.numbers[taken]) if isinstance(source, Drawn) else Drawn(source, taken)
