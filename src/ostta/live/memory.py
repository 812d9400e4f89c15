"""Number of images and scores stored by an adapter."""

from __future__ import annotations

from typing import NamedTuple

from ..adapter import Adapter
from ..core.text import counted


class Memory(NamedTuple):
    """Number of stored images (features or pixels, by method and score) and of stored scores (by the identifier)."""

    images: int = 0
    scores: int = 0

    @classmethod
    def of(cls, adapter: Adapter) -> Memory:
        """Return the current numbers of an adapter.

        >>> guarded = ostta.load("embedded", ["cat", "dog"])
        >>> for _ in range(8):
        ...     prediction = guarded.step(image)
        >>> Memory.of(guarded)
        Memory(images=8, scores=0)
        """
        banks = (*adapter.state.memories().values(), *adapter.score.memories().values())
        return cls(sum(map(len, banks)), max(map(len, adapter.identifier.memories().values()), default=0))

    def __str__(self) -> str:
        """Return the numbers as text. Identifiers that store no scores have none.

        >>> print(Memory(96, 1))
        96 images, 1 score
        >>> print(Memory(96))
        96 images
        """
        scores = f", {counted(self.scores, 'score')}" if self.scores else ""
        return f"{counted(self.images, 'image')}{scores}"
