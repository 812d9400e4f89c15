"""The slots of a ring buffer: which one is written next, and how many are filled."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .types import Error

Kind = TypeVar("Kind", bound=np.generic)


class Ring:
    """Hand out slots 0, 1, ... of a storage with `capacity` slots; the oldest slot is reused first.

    >>> ring = Ring(2)
    >>> [ring.advance() for _ in range(3)], len(ring)
    ([0, 1, 0], 2)
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise Error(f"A ring buffer has at least one slot, not {capacity}.", code="capacity-invalid")
        self.capacity, self.next, self._count = capacity, 0, 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether every slot is filled."""
        return self._count == self.capacity

    def advance(self) -> int:
        """Return the slot of a new entry, and count it."""
        slot = self.next
        self.next = (slot + 1) % self.capacity
        self._count = min(self._count + 1, self.capacity)
        return slot

    def ordered(self, storage: NDArray[Kind]) -> NDArray[Kind]:
        """Return the filled rows of `storage` from oldest to newest, as a new array."""
        return np.roll(storage, -self.next, axis=0) if self.full else storage[: self._count].copy()

    def load(self, following: int, count: int) -> bool:
        """Set the next slot and the number of filled ones; return False, and change nothing, if no ring can have these."""
        if not 0 <= count <= self.capacity or not 0 <= following < self.capacity:
            return False
        if count < self.capacity and following != count:
            return False
        self.next, self._count = following, count
        return True
