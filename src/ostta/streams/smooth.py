"""The smooth scenario: conditions change in small steps along a path of pairs of corruptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..data.corruptions import SMALL_SIDE
from ..data.corruptions.dataset import benchmark_size
from .corruption_path import Cell, walk
from .mixing import (
    CHOOSE_DESIRED,
    CHOOSE_UNDESIRED,
    at_least_one,
    check_desired,
    cycled,
    generator,
    shuffled,
    spread,
    wanted_and_there,
)
from .ordered import again
from .stream import Numbers, Source, Stream, Visit, drawn_numbers, told_apart

Pixels = NDArray[np.uint8]


class PairCorruption(Protocol):
    """Two corruptions, one after the other: `data.corruptions.corrupt_pair`."""

    def __call__(
        self,
        image: Pixels,
        first: str,
        first_severity: float,
        second: str,
        second_severity: float,
        *,
        seed: int,
        index: int,
    ) -> Pixels: ...


@dataclass(frozen=True, eq=False)
class Weathered:
    """A clean set as it looks in one cell of the path. Large images are first cut to the benchmark's 224 pixels."""

    clean: Source
    cell: Cell
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
        _, first, first_severity, second, second_severity = astuple(self.cell)
        image = self.clean.image(index)
        pixels = np.asarray(benchmark_size(image) if min(image.size) > SMALL_SIDE else image)
        return Image.fromarray(
            self.corrupt(pixels, first, first_severity, second, second_severity, seed=self.seed, index=index)
        )


class Smooth(Stream):
    """`speed` desired images in each cell of the path (`corruption_path.py`), and undesired ones at random places among them.

    `desired` is a clean set; each cell shows the next `speed` of its images in random order. The path ends when all
    have been shown once, or after `cells` cells, where images come again in rounds; so do undesired images where they
    are too few (D26). `corrupt_undesired` spoils the undesired images as their neighbours are. A domain is one leg of
    the path, named by its two corruptions.
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
        check_desired(desired)
        at_least_one("speed", speed)
        if cells is not None:
            at_least_one("cells", cells)
        total = len(desired) if cells is None else cells * speed
        sizes = [min(speed, total - start) for start in range(0, total, speed)]
        wanted, there = wanted_and_there(total, undesired, ratio)
        known = cycled(len(desired), total, generator(seed, purpose=CHOOSE_DESIRED))
        unknown = cycled(there, wanted, generator(seed, purpose=CHOOSE_UNDESIRED))
        self.cells = list(islice(walk(corruptions, budget, seed), len(sizes)))
        starts, bounds = spread(total, sizes), spread(len(unknown), sizes)
        visits = []
        for number, cell in enumerate(self.cells):
            here = Weathered(desired, cell, corrupt, seed)
            beside = (
                Weathered(undesired, cell, corrupt, seed) if undesired is not None and corrupt_undesired else undesired
            )
            order = shuffled(
                known[starts[number] : starts[number + 1]],
                unknown[bounds[number] : bounds[number + 1]],
                generator(seed, number),
            )
            visits.append(Visit(cell.leg, here, beside, order))
        legs = {cell.leg: f"{cell.first} to {cell.second}" for cell in self.cells}
        options = {
            "kind": "smooth",
            "speed": speed,
            "corruptions": list(corruptions),
            "budget": budget,
            "cells": [astuple(cell) for cell in self.cells],
            "corrupt_undesired": corrupt_undesired,
            "ratio": ratio,
            "seed": seed,
        }
        notes = again(there, len(unknown))
        super().__init__(told_apart(list(legs.values())), visits, options, short_of=wanted - len(unknown), notes=notes)
