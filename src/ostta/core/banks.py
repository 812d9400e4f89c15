"""The two kinds of memory a stream has: recent scores, and features of reliable images.

Both are rings in storage that is allocated once. What a step would find if its image were stored already can be asked without
storing it, so that a step which turns out to be impossible (a loss that is not finite) leaves no trace.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from .checks import require_kind, require_names, require_room, require_unit, stored, stored_count
from .images import ImageBuffer, ImageMemory
from .types import Error

# How many recent scores may count.
WINDOWS = (2, 1_000_000)
# A score comes from single precision, and no more than this can.
LARGEST_SCORE = float(np.finfo(np.float32).max)
# A threshold from fewer recent scores than this says little: verdicts on the first 16 images are 4 points (LDA) and 16 (`field`) less
# often right than in the end, on images 33 to 64 one and 4 (tools/warming_up.py).
TRUSTED = 32


def named(**content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Several groups of tensors as one, each name led by its group's. `checks.split` takes them apart again."""
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

    @property
    def bytes(self) -> int:
        return self._ring.nbytes

    @property
    def young(self) -> bool:
        """Whether it holds too few scores for a threshold to be trusted."""
        return self._count < min(TRUSTED, self.capacity)

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

    def mean_with(self, score: float) -> float:
        """The mean as it would be after `push(score)`; the bank itself does not change."""
        if self._count < self.capacity:
            return float(self._ring[: self._count].sum() + score) / (self._count + 1)
        return float(self._ring.sum() - self._ring[self._next] + score) / self._count

    def stored(self, tensors: dict[str, torch.Tensor], name: str = "scores") -> NDArray[np.float64]:
        """The scores in `tensors` for `load`; an Error where they cannot be those of a bank like this one."""
        length = min(len(tensors[name]) if name in tensors and tensors[name].ndim else 0, self.capacity)
        scores: NDArray[np.float64] = stored(
            tensors, name, torch.float64, (length,), -LARGEST_SCORE, LARGEST_SCORE
        ).numpy()
        return scores

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
        require_room("A feature bank", (capacity, width))
        self.capacity = capacity
        self._features = torch.zeros(capacity, width, device=device)
        self._labels = torch.full((capacity,), -1, dtype=torch.long, device=device)
        self._next = [0] * groups
        self._count = [0] * groups

    def __len__(self) -> int:
        return sum(self._count)

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
        group = self._group(label)
        return len(self) + (self._count[group] < self.capacity // len(self._count))

    def push(self, features: torch.Tensor, label: int = 0) -> None:
        slot, group, size = self.place(label), self._group(label), self.capacity // len(self._count)
        self._features[slot] = features.detach()
        self._labels[slot] = label
        self._next[group] = (self._next[group] + 1) % size
        self._count[group] = min(self._count[group] + 1, size)

    def similarities(self, features: torch.Tensor) -> torch.Tensor:
        """Cosines of `features` to every slot; minus infinity where a slot is empty."""
        similar = self._features @ features
        return similar if len(self) == self.capacity else similar.masked_fill(self._labels < 0, -torch.inf)

    def rows(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The features in some slots, and their classes."""
        return self._features.index_select(0, slots), self._labels.index_select(0, slots)

    def _group(self, label: int) -> int:
        return label if len(self._count) > 1 else 0

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "features": self._features.clone(),
            "labels": self._labels.clone(),
            "next": torch.tensor(self._next),
            "count": torch.tensor(self._count),
        }

    def load(self, tensors: dict[str, torch.Tensor], classes: int = 1) -> None:
        """Replace the content, whose labels are below `classes`; refused whole where it cannot be that of a ring like this one."""
        groups, size = len(self._count), self.capacity // len(self._count)
        require_names(tensors, ("features", "labels", "next", "count"))
        features = stored(tensors, "features", torch.float32, self._features.shape)
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, classes - 1)
        following = stored(tensors, "next", torch.int64, (groups,), 0, size - 1)
        count = stored(tensors, "count", torch.int64, (groups,), 0, size)
        # Each group is filled from its start, and only a full one goes round.
        filled = torch.arange(size) < count[:, None]
        if not bool(((labels.reshape(groups, size) >= 0) == filled).all()) or bool(
            ((count < size) & (following != count)).any()
        ):
            raise Error("The stored feature bank is damaged: its labels, `next` and `count` do not agree.")
        if groups > 1 and not bool((labels.reshape(groups, size) == torch.arange(groups)[:, None])[filled].all()):
            raise Error("The stored feature bank is damaged: a feature is not with its own class.")
        require_unit(features, filled.flatten(), "feature bank")
        self._features.copy_(features)
        self._labels.copy_(labels)
        self._next, self._count = following.tolist(), count.tolist()


class _Rows:
    """Unit features in main memory, as rows of an array that is allocated once; the first `len` of them are in use."""

    def __init__(self, what: str, capacity: int, width: int) -> None:
        require_room(what, (capacity, width))
        self._rows: NDArray[np.float32] = np.zeros((capacity, width), np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return self._rows.nbytes

    @property
    def rows(self) -> NDArray[np.float32]:
        """The stored rows, as a view; those of a window that is not full from oldest to newest."""
        return self._rows[: self._count]

    @property
    def features(self) -> torch.Tensor:
        return torch.from_numpy(self.rows.copy())


class FeatureWindow(_Rows):
    """The unit features of the last `capacity` images, whatever they showed, oldest overwritten first.

    In main memory, as rows of an array: whoever looks at them all at once does so seldom.
    """

    def __init__(self, capacity: int, width: int) -> None:
        super().__init__("A window of features", capacity, width)
        self._next = 0

    @property
    def ordered(self) -> NDArray[np.float32]:
        """The stored rows from oldest to newest, as a new array."""
        return np.roll(self.rows, -self._next if self._count == len(self._rows) else 0, axis=0)

    def push(self, features: NDArray[np.float32]) -> int:
        """Store the row of one image; the place it takes, in which another may have been."""
        place = self._next
        self._rows[place] = features
        self._next = (place + 1) % len(self._rows)
        self._count = min(self._count + 1, len(self._rows))
        return place

    def tensors(self) -> dict[str, torch.Tensor]:
        numbers = {"next": torch.tensor(self._next), "count": torch.tensor(self._count)}
        return {"rows": torch.from_numpy(self._rows.copy()), **numbers}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content; refused whole where it cannot be that of a window like this one."""
        require_names(tensors, ("rows", "next", "count"))
        rows = stored(tensors, "rows", torch.float32, self._rows.shape)
        following = stored_count(tensors, "next", len(self._rows) - 1)
        count = stored_count(tensors, "count", len(self._rows))
        if count < len(self._rows) and following != count:
            raise Error("The stored window of features is damaged: its `next` and `count` do not agree.")
        require_unit(rows, torch.arange(len(self._rows)) < count, "window of features")
        self._rows[:] = rows.numpy()
        self._next, self._count = following, count


class LowestFeatures(_Rows):
    """The unit features of the images with the lowest scores so far, at most `capacity`, in main memory."""

    def __init__(self, capacity: int, width: int) -> None:
        super().__init__("A dictionary of features", capacity, width)
        self._scores: NDArray[np.float64] = np.zeros(capacity)

    def push(self, features: NDArray[np.float32], score: float) -> None:
        """Store an image; where all is full, in the place of the highest score, if this one is lower."""
        place = self._count
        if place == len(self._rows):
            place = int(self._scores.argmax())
            if score >= self._scores[place]:
                return
        self._rows[place], self._scores[place] = features, score
        self._count = max(self._count, place + 1)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"rows": self.features, "scores": torch.from_numpy(self._scores[: self._count].copy())}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content; refused whole where it cannot be that of a memory like this one."""
        require_names(tensors, ("rows", "scores"))
        count = min(len(tensors["scores"]) if tensors["scores"].ndim else 0, len(self._rows))
        rows = stored(tensors, "rows", torch.float32, (count, self._rows.shape[1]))
        scores = stored(tensors, "scores", torch.float64, (count,), -LARGEST_SCORE, LARGEST_SCORE)
        require_unit(rows, torch.ones(count, dtype=torch.bool), "dictionary of features")
        self._rows[:count], self._rows[count:] = rows.numpy(), 0
        self._scores[:count], self._scores[count:] = scores.numpy(), 0
        self._count = count


class ClassCache:
    """At most `depth` features a class, those of lowest entropy, in storage that is allocated once (TDA, DPE).

    `place` says where a candidate would go without putting it there, so that a look can count it and change nothing.
    """

    def __init__(self, classes: int, depth: int, width: int, device: torch.device | None = None) -> None:
        if depth < 1:
            raise Error(f"A cache holds at least one feature a class, not {depth}.")
        require_room("A cache", (classes, depth, width))
        self.features = torch.zeros(classes, depth, width, device=device)
        # Infinite entropy marks an empty place: anything is better.
        self.entropies = torch.full((classes, depth), torch.inf, device=device)

    def __len__(self) -> int:
        return int(self.filled.sum())

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
        """Replace the content; refused whole where it cannot be that of a cache like this one."""
        require_names(tensors, ("features", "entropies"))
        features = stored(tensors, "features", torch.float32, self.features.shape)
        entropies = require_kind(tensors, "entropies", torch.float32, self.entropies.shape)
        # Rounding may leave an entropy slightly below zero. The comparison is false for NaN.
        if not bool((entropies > -1e-3).all()):
            raise Error("The stored cache is damaged: an entropy is negative or not a number.")
        require_unit(features, entropies < torch.inf, "cache")
        self.features.copy_(features)
        self.entropies.copy_(entropies)


# What a method may remember of images.
FeatureMemory = FeatureBank | ClassCache | FeatureWindow | LowestFeatures | ImageBuffer | ImageMemory
