"""Some images of a data set, drawn by the seed: with other seeds other images come, and not only in another order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.sampling import balanced
from ..core.types import Error
from .mixing import DRAW_DESIRED, DRAW_UNDESIRED, generator
from .stream import Numbers, Source


@dataclass(frozen=True, eq=False)
class Drawn:
    """The images `numbers` of `whole`. Records name each by its number in the whole set, so that runs can be compared image by image."""

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


def draw(source: Source, wanted: int, seed: int, *, desired: bool) -> Drawn:
    """`wanted` images of `source`, all where there are fewer, as many of each class as there can be, in the set's own order.

    A smaller number with the same seed draws some of the same images. The same set is drawn from alike under every corruption.
    """
    if wanted < 0:
        raise Error(f"{wanted} images cannot be drawn from {source.name}.")
    chance = generator(seed, purpose=DRAW_DESIRED if desired else DRAW_UNDESIRED)
    taken = balanced(np.asarray(source.labels), wanted, chance)
    return Drawn(source.whole, source.numbers[taken]) if isinstance(source, Drawn) else Drawn(source, taken)
