"""A small ring of earlier states of an adapter, each as named tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an adapter remembered after a step."""

    step: int
    tensors: Mapping[str, torch.Tensor]


class Snapshots:
    """The last few snapshots; the oldest is dropped first."""

    def __init__(self, capacity: int) -> None:
        self._ring: deque[Snapshot] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._ring)

    def push(self, snapshot: Snapshot) -> None:
        self._ring.append(snapshot)

    def pop(self) -> Snapshot | None:
        """Remove and return the newest snapshot; None if there is none."""
        return self._ring.pop() if self._ring else None

    def clear(self) -> None:
        self._ring.clear()
