"""Memories of bounded size: recent scores, and features of images.

The storage is allocated once. `sorted_with`, `place` and similar functions return results as if an image were already
stored, so that a step can use them before it stores anything.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from .checks import require_intact, require_names, require_room, require_unit, stored, stored_count, stored_length
from .types import Look

# Bounds of options for the number of recent scores.
WINDOWS = (2, 1_000_000)
# The largest number in single precision, in which scores are computed.
LARGEST_SCORE = float(np.finfo(np.float32).max)
# Number of scores from which a threshold is reliable. Compared with the end of a stream, verdicts are less accurate by
# 4 points (LDA) and 16 points (`field`) on the first 16 images, and by 1 and 4 points on images 33 to 64
# (tools/warming_up.py).
TRUSTED = 32

Kind = TypeVar("Kind", bound=np.generic)


def named(**content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Join groups of tensors, with the name of the group before each name. `checks.split` is the inverse."""
    return {f"{group}/{name}": tensor for group, tensors in content.items() for name, tensor in tensors.items()}


def feature_row(look: Look[Any], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return the features of an image as a row of an array in main memory."""
    return look.features.detach().float().cpu().numpy().astype(dtype, copy=False)


class FeatureMemory(Protocol):
    """A memory of images: the number of its entries, and the size of its storage in bytes."""

    def __len__(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class Ring:
    """Hand out slots 0, 1, ... of a storage with `capacity` slots; the oldest slot is reused first.

    >>> ring = Ring(2)
    >>> [ring.advance() for _ in range(3)], len(ring)
    ([0, 1, 0], 2)
    """

    def __init__(self, capacity: int) -> None:
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

    def load(self, slot: int, count: int) -> bool:
        """Set the next slot and the number of filled ones; return False, without a change, if they contradict."""
        if not 0 <= slot < self.capacity or (count != self.capacity and count != slot):
            return False
        self.next, self._count = slot, count
        return True


class ScoreBank:
    """The last `capacity` scores, oldest overwritten first."""

    def __init__(self, capacity: int = 512) -> None:
        self._ring = Ring(capacity)
        self._scores: NDArray[np.float64] = np.empty(capacity, dtype=np.float64)

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def capacity(self) -> int:
        return self._ring.capacity

    @property
    def bytes(self) -> int:
        return self._scores.nbytes

    @property
    def young(self) -> bool:
        """Whether there are too few scores for a reliable threshold."""
        return len(self) < min(TRUSTED, self.capacity)

    def push(self, score: float) -> None:
        self._scores[self._ring.advance()] = score

    def scores(self) -> NDArray[np.float64]:
        """Return the scores from oldest to newest, as a new array."""
        return self._ring.ordered(self._scores)

    def sorted_with(self, score: float) -> NDArray[np.float64]:
        """Return the sorted content as it would be after `push(score)`. Changes nothing."""
        if self._ring.full:
            values = self._scores.copy()
            values[self._ring.next] = score
        else:
            values = np.append(self._scores[: len(self)], score)
        values.sort()
        return values

    def stored(self, tensors: dict[str, torch.Tensor], name: str = "scores") -> NDArray[np.float64]:
        """Return the scores in `tensors` for `load`; raise an Error if they do not fit this bank."""
        shape = (stored_length(tensors, name, self.capacity),)
        scores: NDArray[np.float64] = stored(tensors, name, torch.float64, shape, -LARGEST_SCORE, LARGEST_SCORE).numpy()
        return scores

    def load(self, scores: NDArray[np.float64]) -> None:
        """Replace the content; `scores` are ordered from oldest to newest."""
        self._ring = Ring(self.capacity)
        for score in scores[-self.capacity :]:
            self.push(float(score))


class FeatureBank:
    """Unit features in ring buffers, each with its class.

    With one group, as in the published code, the oldest feature is replaced first, regardless of its class. With one
    group per class, the storage is divided into equal parts, one ring for each class (D31).
    """

    def __init__(
        self, capacity: int, width: int, groups: int = 1, device: torch.device | None = None, classes: int = 1
    ) -> None:
        require_room("A feature bank", (capacity, width))
        self.capacity, self._classes = capacity, max(classes, groups)
        self._features = torch.zeros(capacity, width, device=device)
        self._labels = torch.full((capacity,), -1, dtype=torch.long, device=device)
        self._rings = [Ring(capacity // groups) for _ in range(groups)]

    def __len__(self) -> int:
        return sum(map(len, self._rings))

    @property
    def bytes(self) -> int:
        return self._features.numel() * self._features.element_size()

    @property
    def features(self) -> torch.Tensor:
        """The stored rows, as a view if there is one ring."""
        return self._features[: len(self)] if len(self._rings) == 1 else self._features[self._labels >= 0]

    @property
    def labels(self) -> torch.Tensor:
        return self._labels[: len(self)] if len(self._rings) == 1 else self._labels[self._labels >= 0]

    def place(self, label: int = 0) -> int:
        """Return the slot of the next feature of class `label`."""
        group = self._group(label)
        return group * self._rings[group].capacity + self._rings[group].next

    def size_with(self, label: int = 0) -> int:
        """Return the number of features with one more of class `label`."""
        return len(self) + (not self._rings[self._group(label)].full)

    def push(self, features: torch.Tensor, label: int = 0) -> None:
        slot = self.place(label)
        self._features[slot] = features.detach()
        self._labels[slot] = label
        self._rings[self._group(label)].advance()

    def similarities(self, features: torch.Tensor) -> torch.Tensor:
        """Return the cosines of `features` to every slot; minus infinity for an empty slot."""
        similar = self._features @ features
        return similar if len(self) == self.capacity else similar.masked_fill(self._labels < 0, -torch.inf)

    def rows(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features in some slots, and their classes."""
        return self._features.index_select(0, slots), self._labels.index_select(0, slots)

    def _group(self, label: int) -> int:
        return label if len(self._rings) > 1 else 0

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "features": self._features.clone(),
            "labels": self._labels.clone(),
            "next": torch.tensor([ring.next for ring in self._rings]),
            "count": torch.tensor([len(ring) for ring in self._rings]),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Raise an Error and change nothing if the content does not fit this bank."""
        groups, size = len(self._rings), self._rings[0].capacity
        require_names(tensors, ("features", "labels", "next", "count"))
        features = stored(tensors, "features", torch.float32, self._features.shape)
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, self._classes - 1)
        slots = stored(tensors, "next", torch.int64, (groups,), 0, size - 1)
        counts = stored(tensors, "count", torch.int64, (groups,), 0, size)
        rings = [Ring(size) for _ in range(groups)]
        consistent = [ring.load(*pair) for ring, *pair in zip(rings, slots.tolist(), counts.tolist(), strict=True)]
        by_group, filled = labels.reshape(groups, size), torch.arange(size) < counts[:, None]
        agree = all(consistent) and bool(((by_group >= 0) == filled).all())
        require_intact(agree, "feature bank", "its labels, `next` and `count` do not agree")
        own_class = groups == 1 or (by_group == torch.arange(groups)[:, None])[filled].all()
        require_intact(own_class, "feature bank", "a feature is not with its own class")
        require_unit(features, "feature bank", filled.flatten())
        self._features.copy_(features)
        self._labels.copy_(labels)
        self._rings = rings


class FeatureWindow:
    """The unit features of the last `capacity` images in main memory; the oldest row is overwritten first."""

    def __init__(self, capacity: int, width: int) -> None:
        require_room("A window of features", (capacity, width))
        self._rows: NDArray[np.float32] = np.zeros((capacity, width), np.float32)
        self._ring = Ring(capacity)

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def bytes(self) -> int:
        return self._rows.nbytes

    @property
    def rows(self) -> NDArray[np.float32]:
        """The stored rows, as a view."""
        return self._rows[: len(self)]

    @property
    def ordered(self) -> NDArray[np.float32]:
        """The stored rows from oldest to newest, as a new array."""
        return self._ring.ordered(self._rows)

    def push(self, features: NDArray[np.float32]) -> None:
        """Store the row of one image."""
        self._rows[self._ring.advance()] = features

    def tensors(self) -> dict[str, torch.Tensor]:
        numbers = {"next": torch.tensor(self._ring.next), "count": torch.tensor(len(self))}
        return {"rows": torch.from_numpy(self._rows.copy()), **numbers}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Raise an Error and change nothing if the content does not fit this window."""
        require_names(tensors, ("rows", "next", "count"))
        rows = stored(tensors, "rows", torch.float32, self._rows.shape)
        slot = stored_count(tensors, "next", len(self._rows) - 1)
        count = stored_count(tensors, "count", len(self._rows))
        ring = Ring(len(self._rows))
        require_intact(ring.load(slot, count), "window of features", "its `next` and `count` do not agree")
        require_unit(rows, "window of features", torch.arange(len(self._rows)) < count)
        self._rows[:] = rows.numpy()
        self._ring = ring
