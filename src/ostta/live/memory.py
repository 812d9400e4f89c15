"""What an adapter has learned from a stream, in numbers for people."""

from __future__ import annotations

from typing import NamedTuple

from ..adapter import Adapter
from ..core.words import counted


class Memory(NamedTuple):
    """Number of remembered images (features or pixels, of method and score) and of scores (of the identifier)."""

    images: int = 0
    scores: int = 0

    @classmethod
    def of(cls, adapter: Adapter) -> Memory:
        """The memory of an adapter as it is now.

        >>> guarded = ostta.load("embedded", ["cat", "dog"])
        >>> for _ in range(4):
        ...     prediction = guarded.step(image)
        >>> Memory.of(guarded)
        Memory(images=4, scores=4)
        """
        banks = (*adapter.state.memories().values(), *adapter.score.memories().values())
        return cls(sum(map(len, banks)), max(map(len, adapter.identifier.memories().values()), default=0))

    def __str__(self) -> str:
        """As words.

        >>> print(Memory(96, 1))
        96 images, 1 score
        """
        return f"{counted(self.images, 'image')}, {counted(self.scores, 'score')}"
