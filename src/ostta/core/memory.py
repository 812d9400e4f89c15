"""The two kinds of memory a stream has: recent scores, and features of reliable images.

Both are rings in storage that is allocated once. What a step would find if its image were stored already can be asked without
storing it, so that a step which turns out to be impossible (a loss that is not finite) leaves no trace.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from .types import Error


def parts(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def named(**content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Several groups of tensors as one, each name led by its group's."""
    return {f"{group}/{name}": tensor for group, tensors in content.items() for name, tensor in tensors.items()}


class ScoreBank:
    """The last `capacity` scores, oldest overwritten first."""

    def __init__(self, capacity: int = 512) -> None:
        if capacity < 1:
            raise Error(f"A score bank holds at least one score, not {capacity}.")
        self._ring: NDArray[np.float64] = np.empty(capacity, dtype=np.float64)
        self._next = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def capacity(self) -> int:
        return len(self._ring)

    def push(self, score: float) -> None:
        self._ring[self._next] = score
        self._next = (self._next + 1) % self.capacity
        self._count = min(self._count + 1, self.capacity)

    def scores(self) -> NDArray[np.float64]:
        """The scores from oldest to newest, as a new array."""
        if self._count < self.capacity:
            return self._ring[: self._count].copy()
        return np.roll(self._ring, -self._next)

    def sorted_with(self, score: float) -> NDArray[np.float64]:
        """The sorted content as it would be after `push(score)`; the bank itself does not change."""
        if self._count < self.capacity:
            values = np.empty(self._count + 1)
            values[:-1] = self._ring[: self._count]
            values[-1] = score
        else:
            values = self._ring.copy()
            values[self._next] = score
        values.sort()
        return values

    def load(self, scores: NDArray[np.float64]) -> None:
        """Replace the content; `scores` run from oldest to newest."""
        self._next = self._count = 0
        for score in scores[-self.capacity :]:
            self.push(float(score))


class FeatureBank:
    """Unit features in a ring of fixed storage, each with the class it stands for.

    With `groups` classes the ring is cut into equal parts, one a class, each first in first out on its own (D31); with one
    group, the published code's choice, the oldest feature goes first whatever its class.
    """

    def __init__(self, capacity: int, width: int, groups: int = 1, device: torch.device | None = None) -> None:
        if capacity < 1 or groups < 1 or capacity % groups:
            raise Error(f"A feature bank of {capacity} cannot be shared by {groups} classes.")
        self._features = torch.zeros(capacity, width, device=device)
        self._labels = torch.full((capacity,), -1, dtype=torch.long, device=device)
        self._next = [0] * groups
        self._count = [0] * groups

    def __len__(self) -> int:
        return sum(self._count)

    @property
    def capacity(self) -> int:
        return len(self._features)

    @property
    def bytes(self) -> int:
        return self._features.numel() * self._features.element_size()

    @property
    def features(self) -> torch.Tensor:
        """The stored rows, as a view where the ring is filled from its start."""
        return self._features[: self._count[0]] if len(self._count) == 1 else self._features[self._labels >= 0]

    @property
    def labels(self) -> torch.Tensor:
        return self._labels[: self._count[0]] if len(self._count) == 1 else self._labels[self._labels >= 0]

    def place(self, label: int = 0) -> int:
        """The slot that the next feature of class `label` goes to."""
        group = self._group(label)
        return group * (self.capacity // len(self._count)) + self._next[group]

    def size_with(self, label: int = 0) -> int:
        """How many features there would be with one more of class `label`."""
        return len(self) + int(self._labels[self.place(label)] < 0)

    def push(self, features: torch.Tensor, label: int = 0) -> None:
        slot, group, size = self.place(label), self._group(label), self.capacity // len(self._count)
        self._features[slot] = features.detach()
        self._labels[slot] = label
        self._next[group] = (self._next[group] + 1) % size
        self._count[group] = min(self._count[group] + 1, size)

    def similarities(self, features: torch.Tensor) -> torch.Tensor:
        """Cosines of `features` to every slot; minus infinity where a slot is empty."""
        return (self._features @ features).masked_fill(self._labels < 0, -torch.inf)

    def rows(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The features in some slots, and their classes."""
        return self._features[slots], self._labels[slots]

    def _group(self, label: int) -> int:
        return label if len(self._count) > 1 else 0

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "features": self._features.clone(),
            "labels": self._labels.clone(),
            "next": torch.tensor(self._next),
            "count": torch.tensor(self._count),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        if tensors["features"].shape != self._features.shape or len(tensors["next"]) != len(self._next):
            raise Error(
                f"The stored feature bank has shape {tuple(tensors['features'].shape)}, "
                f"this one needs {tuple(self._features.shape)}."
            )
        self._features.copy_(tensors["features"])
        self._labels.copy_(tensors["labels"])
        self._next, self._count = tensors["next"].tolist(), tensors["count"].tolist()


class ClassCache:
    """At most `depth` features a class, those of lowest entropy, in storage that is allocated once (TDA, DPE).

    `place` says where a candidate would go without putting it there, so that a look can count it and change nothing.
    """

    def __init__(self, classes: int, depth: int, width: int, device: torch.device | None = None) -> None:
        if depth < 1:
            raise Error(f"A cache holds at least one feature a class, not {depth}.")
        self.features = torch.zeros(classes, depth, width, device=device)
        # Infinite entropy marks an empty place: anything is better.
        self.entropies = torch.full((classes, depth), torch.inf, device=device)

    @property
    def filled(self) -> torch.Tensor:
        """Which places hold a feature, [classes, depth]."""
        return self.entropies < torch.inf

    @property
    def bytes(self) -> int:
        return self.features.numel() * self.features.element_size()

    def place(self, label: int, entropy: float) -> int | None:
        """The place that a candidate would take: the first empty one, or the worst if it is worse; None if it has none."""
        worst, place = self.entropies[label].max(dim=0)
        return int(place) if entropy < float(worst) else None

    def put(self, label: int, place: int, features: torch.Tensor, entropy: float) -> None:
        self.features[label, place] = features.detach()
        self.entropies[label, place] = entropy

    def similarities(self, features: torch.Tensor, label: int, place: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines of `features` to every place, and which places count, with the candidate itself at (label, place)."""
        similar, filled = self.features @ features, self.filled
        if place is not None:
            similar[label, place] = features @ features
            filled[label, place] = True
        return similar, filled

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"features": self.features.clone(), "entropies": self.entropies.clone()}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        if tensors["features"].shape != self.features.shape:
            raise Error(
                f"The stored cache has shape {tuple(tensors['features'].shape)}, this one needs {tuple(self.features.shape)}."
            )
        self.features.copy_(tensors["features"])
        self.entropies.copy_(tensors["entropies"])
