"""Mixing by numbers: which images come, and in what order. In an order, ~n stands for undesired image n.

All chance comes from a PCG64 generator that is named here, so that a seed means the same order everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.types import Error
from .stream import Numbers, Source

# What a draw of a seed is for: the order inside a visit, which images are taken, the corruptions of a path, and which
# images of a set a stream has at all. With visit 0 and ORDER the generator is that of the plain seed, so the first visit of any scenario is mixed as a single
# domain is.
ORDER, CHOOSE_DESIRED, CHOOSE_UNDESIRED, PATH, DRAW_DESIRED, DRAW_UNDESIRED = range(6)


def generator(seed: int, visit: int = 0, purpose: int = ORDER) -> np.random.Generator:
    """The generator of `seed` for one purpose in one visit, independent of all others."""
    if seed < 0:
        raise Error(f"`seed` is a whole number of at least 0, not {seed}.")
    return np.random.Generator(np.random.PCG64([seed, visit, purpose]))


def wanted_and_there(desired: int, undesired: Source | None, ratio: float) -> tuple[int, int]:
    """How many undesired images belong to so many desired ones, and how many there are.

    All desired images are kept, and N_u = int(r N_d), as in the published code (D23); r = 0 is the closed set.
    """
    if not 0 <= ratio < math.inf:
        raise Error(f"`ratio` is the number of undesired images per desired one, at least 0, not {ratio}.")
    return (0, 0) if undesired is None else (int(desired * ratio), len(undesired))


def check_desired(desired: Source) -> None:
    """An Error where there is nothing to show."""
    if not len(desired):
        raise Error(f"{desired.name} has no images.")


def at_least_one(name: str, value: int) -> None:
    """An Error where a count is not one."""
    if value < 1:
        raise Error(f"`{name}` is a whole number of at least 1, not {value}.")


def shuffled(desired: Numbers, undesired: Numbers, chance: np.random.Generator) -> Numbers:
    """Both sides in one uniform random order."""
    both = np.concatenate([desired, ~undesired])
    return both[chance.permutation(len(both))]


def interleaved(desired: Numbers, undesired: Numbers, chance: np.random.Generator) -> Numbers:
    """Both sides in the order they are given in, the undesired ones at random places."""
    places = np.sort(chance.permutation(len(desired) + len(undesired))[: len(undesired)])
    return np.insert(desired, places - np.arange(len(places)), ~undesired)


def cycled(count: int, wanted: int, chance: np.random.Generator) -> Numbers:
    """`wanted` numbers below `count`: the first ones in random order; where `count` is too few, all of them in rounds.

    Every round has its own random order, and no number comes a second time before all have come once.
    """
    rounds = [chance.permutation(min(count, wanted)) for _ in range(math.ceil(wanted / count) if count else 0)]
    return np.concatenate(rounds)[:wanted] if rounds else np.zeros(0, np.int64)


def spread(total: int, sizes: Sequence[int]) -> Numbers:
    """The bounds that cut `total` things into shares in proportion to `sizes`, each bound rounded down."""
    reached = np.concatenate([[0], np.cumsum(sizes)])
    return reached * total // max(int(reached[-1]), 1)
