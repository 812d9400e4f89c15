"""The smooth scenario: conditions change in small steps along a path of pairs of corruptions.

As in the CCC benchmark, two corruptions are active at a time: the severity s1 of the first falls while the severity s2
of the second grows. A leg starts at (s1, 0), each move lowers s1 or raises s2 by 0.25, and the leg ends at s1 = 0,
where the second corruption becomes the first of the next leg. CCC chooses its moves by a downloaded table of the
accuracies of a ResNet-50 so that their mean meets a target. Here the target is a total severity, the budget: start at
s1 = min(budget, 5); while s1 + s2 is below the budget and s2 is below 5, raise s2; otherwise lower s1.

For a budget b of at most 5, a leg goes (b, 0), (b - 0.25, 0), (b - 0.25, 0.25), ..., (0, b - 0.25): its total is b or
b - 0.25. At the junction the shared corruption gains 0.25, like any other move. For a budget above 5, a leg goes from
(5, 0) to (5, b - 5), to (b - 5, 5), and to (0, 5); at the junction only the names change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..data.corruptions import SMALL_SIDE
from ..data.corruptions.dataset import benchmark_size
from .mixing import (
    CHOOSE_DESIRED,
    CHOOSE_UNDESIRED,
    PATH,
    at_least_one,
    cycled,
    generator,
    invalid,
    repetition_note,
    unknown_counts,
    visit_orders,
)
from .stream import Numbers, Source, Stream, Visit, drawn_numbers, numbered_names

# Applies two corruptions in turn: `data.corruptions.corrupt_pair`, with or without textures.
PairCorruption = Callable[..., NDArray[np.uint8]]
STEP, HIGHEST = 0.25, 5.0


class PathPoint(NamedTuple):
    """One point of the path: its leg, and two corruptions with their severities."""

    leg: int
    first: str
    first_severity: float
    second: str
    second_severity: float


def leg(budget: float) -> list[tuple[float, float]]:
    """Return the severities (first, second) of one leg, from its start to first = 0."""
    if not STEP <= budget <= 2 * HIGHEST or budget % STEP:
        raise invalid(
            f"`budget` is a total severity: it must be from {STEP} to {2 * HIGHEST:g} in steps of {STEP}, not {budget}."
        )
    first, second = min(budget, HIGHEST), 0.0
    cells = [(first, second)]
    while first > 0:
        # Multiples of 0.25 are exact in binary, so sums and comparisons are exact.
        if first + second < budget and second < HIGHEST:
            second += STEP
        else:
            first -= STEP
        cells.append((first, second))
    return cells


def walk(corruptions: Sequence[str], budget: float, seed: int) -> Iterator[PathPoint]:
    """Yield the cells of an endless path. The seed draws the corruptions; the two of a leg are different."""
    if len(set(corruptions)) < 2:
        raise invalid(f"A smooth path needs at least 2 corruptions, not {', '.join(corruptions) or 'none'}.")
    severities = leg(budget)
    names = list(dict.fromkeys(corruptions))
    chance = generator(seed, purpose=PATH)
    first = names[int(chance.integers(len(names)))]
    number = 0
    while True:
        others = [name for name in names if name != first]
        second = others[int(chance.integers(len(others)))]
        for first_severity, second_severity in severities:
            yield PathPoint(number, first, first_severity, second, second_severity)
        first = second
        number += 1


@dataclass(frozen=True, eq=False)
class CorruptedSource:
    """A clean set with the corruptions of one cell of the path. Large images are cropped to 224 pixels first."""

    clean: Source
    cell: PathPoint
    corrupt: PairCorruption
    seed: int

    @property
    def name(self) -> str:
        return self.clean.name

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.clean.labels

    @property
    def numbers(self) -> Numbers | None:
        return drawn_numbers(self.clean)

    def __len__(self) -> int:
        return len(self.clean)

    def image(self, index: int) -> Image.Image:
        image = self.clean.image(index)
        pixels = np.asarray(benchmark_size(image) if min(image.size) > SMALL_SIDE else image)
        return Image.fromarray(self.corrupt(pixels, *self.cell[1:], seed=self.seed, index=index))


class Smooth(Stream):
    """`speed` known images in each cell of the path, and unknown images at random positions among them.

    `desired` is a clean set, of which each cell shows the next `speed` images in random order. The path ends when all
    known images have been shown once, or after `cells` cells, for which images are repeated in rounds. Unknown images
    are repeated if there are too few (D26). `corrupt_undesired` applies the corruptions of a cell to its unknown images
    too. A domain is one leg of the path, named after its two corruptions.
    """

    def __init__(
        self,
        desired: Source,
        undesired: Source | None,
        corruptions: Sequence[str],
        corrupt: PairCorruption,
        *,
        speed: int,
        cells: int | None = None,
        budget: float = 5.0,
        corrupt_undesired: bool = False,
        ratio: float = 1.0,
        seed: int = 0,
    ) -> None:
        at_least_one("speed", speed)
        if cells is not None:
            at_least_one("cells", cells)
        total = len(desired) if cells is None else cells * speed
        sizes = [min(speed, total - start) for start in range(0, total, speed)]
        required, available = unknown_counts(desired, undesired, ratio, total)
        known = cycled(len(desired), total, generator(seed, purpose=CHOOSE_DESIRED))
        unknown = cycled(available, required, generator(seed, purpose=CHOOSE_UNDESIRED))
        self.cells = list(islice(walk(corruptions, budget, seed), len(sizes)))
        visits = []
        for cell, order in zip(self.cells, visit_orders(known, unknown, sizes, seed), strict=True):
            known_source = CorruptedSource(desired, cell, corrupt, seed)
            unknown_source = undesired
            if undesired is not None and corrupt_undesired:
                unknown_source = CorruptedSource(undesired, cell, corrupt, seed)
            visits.append(Visit(cell.leg, known_source, unknown_source, order))
        legs = {cell.leg: f"{cell.first} to {cell.second}" for cell in self.cells}
        options = {
            "kind": "smooth",
            "speed": speed,
            "corruptions": list(corruptions),
            "budget": budget,
            "cells": self.cells,
            "corrupt_undesired": corrupt_undesired,
            "ratio": ratio,
            "seed": seed,
        }
        notes = repetition_note(available, len(unknown))
        super().__init__(
            numbered_names(list(legs.values())), visits, options, short_of=required - len(unknown), notes=notes
        )
