"""A small ring of earlier states of an adapter, each as named tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

# What belongs to an overlay is a value that never changes: a snapshot of it is a reference, however large it is.
VALUES = ("method/overlay/", "method/optimiser/")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that an adapter remembers, after so many steps."""

    step: int
    tensors: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, step: int, tensors: Mapping[str, torch.Tensor]) -> Snapshot:
        """From what a state file would hold. A plug-in may hand out its own storage, so that all others are copied."""
        kept = {
            name: tensor.detach() if name.startswith(VALUES) else tensor.detach().to("cpu", copy=True)
            for name, tensor in tensors.items()
        }
        return cls(step, kept)


class Snapshots:
    """The last few snapshots; the oldest goes first."""

    def __init__(self, capacity: int) -> None:
        self._ring: deque[Snapshot] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._ring)

    def keep(self, snapshot: Snapshot) -> None:
        self._ring.append(snapshot)

    def take_last(self) -> Snapshot | None:
        """The newest, which is kept no longer: whoever comes again goes back further."""
        return self._ring.pop() if self._ring else None

    def clear(self) -> None:
        self._ring.clear()
