"""Memories of bounded size: recent scores, and features of images.

Their storage is allocated once. A step can ask for the content as if its image were stored already, so that a step that fails leaves
no trace.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from .checks import require_kind, require_names, require_room, require_unit, stored, stored_count
from .ring import Ring
from .types import Error, Look

# Bounds of options for the number of recent scores.
WINDOWS = (2, 1_000_000)
# Scores are computed in single precision, which has no larger number.
LARGEST_SCORE = float(np.finfo(np.float32).max)
# A threshold from fewer recent scores than this says little: verdicts on the first 16 images are 4 points (LDA) and 16 (`field`) less
# often right than in the end, on images 33 to 64 one and 4 (tools/warming_up.py).
TRUSTED = 32


def named(**content: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Join groups of tensors, with the name of the group before each name. `checks.split` is the inverse."""
    return {f"{group}/{name}": tensor for group, tensors in content.items() for name, tensor in tensors.items()}


def feature_row(look: Look[Any], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return the features of an image as a row of an array in main memory."""
    return look.features.detach().float().cpu().numpy().astype(dtype, copy=False)


class FeatureMemory(Protocol):
    """What a method or a score remembers of images: a number of entries, and the size of their storage."""

    def __len__(self) -> int: ...

    @property
    def bytes(self) -> int: ...


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
        """Whether it holds too few scores for a threshold to be trusted."""
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

    def mean_with(self, score: float) -> float:
        """Return the mean as it would be after `push(score)`. Changes nothing."""
        if self._ring.full:
            return float(self._scores.sum() - self._scores[self._ring.next] + score) / self.capacity
        return float(self._scores[: len(self)].sum() + score) / (len(self) + 1)

    def stored(self, tensors: dict[str, torch.Tensor], name: str = "scores") -> NDArray[np.float64]:
        """Return the scores in `tensors` for `load`; raise an Error if they cannot be those of a bank like this one."""
        length = min(len(tensors[name]) if name in tensors and tensors[name].ndim else 0, self.capacity)
        scores: NDArray[np.float64] = stored(
            tensors, name, torch.float64, (length,), -LARGEST_SCORE, LARGEST_SCORE
        ).numpy()
        return scores

    def load(self, scores: NDArray[np.float64]) -> None:
        """Replace the content; `scores` are ordered from oldest to newest."""
        self._ring = Ring(self.capacity)
        for score in scores[-self.capacity :]:
            self.push(float(score))


class FeatureBank:
    """Unit features in ring buffers, each with its class.

    With `groups` classes the storage is divided into equal parts, one ring for each class (D31); with one group, as in the published
    code, the oldest feature is replaced first, regardless of its class.
    """

    def __init__(self, capacity: int, width: int, groups: int = 1, device: torch.device | None = None) -> None:
        if capacity < 1 or groups < 1 or capacity % groups:
            raise Error(f"A feature bank of {capacity} cannot be shared by {groups} classes.", code="capacity-invalid")
        require_room("A feature bank", (capacity, width))
        self.capacity = capacity
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

    def load(self, tensors: dict[str, torch.Tensor], classes: int = 1) -> None:
        """Replace the content, whose labels are below `classes`. Nothing changes if it cannot be that of a bank like this one."""
        groups, size = len(self._rings), self._rings[0].capacity
        require_names(tensors, ("features", "labels", "next", "count"))
        features = stored(tensors, "features", torch.float32, self._features.shape)
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, classes - 1)
        following = stored(tensors, "next", torch.int64, (groups,), 0, size - 1)
        count = stored(tensors, "count", torch.int64, (groups,), 0, size)
        rings = [Ring(size) for _ in range(groups)]
        sound = [ring.load(*pair) for ring, *pair in zip(rings, following.tolist(), count.tolist(), strict=True)]
        filled = torch.arange(size) < count[:, None]
        if not bool(((labels.reshape(groups, size) >= 0) == filled).all()) or not all(sound):
            raise Error(
                "The stored feature bank is damaged: its labels, `next` and `count` do not agree.", code="state-damaged"
            )
        if groups > 1 and not bool((labels.reshape(groups, size) == torch.arange(groups)[:, None])[filled].all()):
            raise Error(
                "The stored feature bank is damaged: a feature is not with its own class.", code="state-damaged"
            )
        require_unit(features, filled.flatten(), "feature bank")
        self._features.copy_(features)
        self._labels.copy_(labels)
        self._rings = rings


class FeatureWindow:
    """The unit features of the last `capacity` images, as rows of an array in main memory; the oldest is overwritten first."""

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
    def features(self) -> torch.Tensor:
        return torch.from_numpy(self.rows.copy())

    @property
    def ordered(self) -> NDArray[np.float32]:
        """The stored rows from oldest to newest, as a new array."""
        return self._ring.ordered(self._rows)

    def push(self, features: NDArray[np.float32]) -> int:
        """Store the row of one image, and return its place."""
        place = self._ring.advance()
        self._rows[place] = features
        return place

    def tensors(self) -> dict[str, torch.Tensor]:
        numbers = {"next": torch.tensor(self._ring.next), "count": torch.tensor(len(self))}
        return {"rows": torch.from_numpy(self._rows.copy()), **numbers}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Nothing changes if it cannot be that of a window like this one."""
        require_names(tensors, ("rows", "next", "count"))
        rows = stored(tensors, "rows", torch.float32, self._rows.shape)
        following = stored_count(tensors, "next", len(self._rows) - 1)
        count = stored_count(tensors, "count", len(self._rows))
        ring = Ring(len(self._rows))
        if not ring.load(following, count):
            raise Error(
                "The stored window of features is damaged: its `next` and `count` do not agree.", code="state-damaged"
            )
        require_unit(rows, torch.arange(len(self._rows)) < count, "window of features")
        self._rows[:] = rows.numpy()
        self._ring = ring


class LowestFeatures:
    """The unit features of the images with the lowest scores so far, at most `capacity`, in main memory."""

    def __init__(self, capacity: int, width: int) -> None:
        require_room("A dictionary of features", (capacity, width))
        self._rows: NDArray[np.float32] = np.zeros((capacity, width), np.float32)
        self._scores: NDArray[np.float64] = np.zeros(capacity)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return self._rows.nbytes

    @property
    def rows(self) -> NDArray[np.float32]:
        """The stored rows, as a view."""
        return self._rows[: self._count]

    @property
    def features(self) -> torch.Tensor:
        return torch.from_numpy(self.rows.copy())

    def push(self, features: NDArray[np.float32], score: float) -> None:
        """Store an image. If all places are taken, it replaces the one with the highest score, unless its own is higher."""
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
        """Replace the content. Nothing changes if it cannot be that of a memory like this one."""
        require_names(tensors, ("rows", "scores"))
        count = min(len(tensors["scores"]) if tensors["scores"].ndim else 0, len(self._rows))
        rows = stored(tensors, "rows", torch.float32, (count, self._rows.shape[1]))
        scores = stored(tensors, "scores", torch.float64, (count,), -LARGEST_SCORE, LARGEST_SCORE)
        require_unit(rows, torch.ones(count, dtype=torch.bool), "dictionary of features")
        self._rows[:count], self._rows[count:] = rows.numpy(), 0
        self._scores[:count], self._scores[count:] = scores.numpy(), 0
        self._count = count


class ClassCache:
    """At most `depth` features per class, those of lowest entropy (TDA, DPE, OGA).

    `place` returns the place of a candidate without storing it, so that a look can count the candidate and change nothing.
    """

    def __init__(self, classes: int, depth: int, width: int, device: torch.device | None = None) -> None:
        if depth < 1:
            raise Error(f"A cache holds at least one feature per class, not {depth}.", code="capacity-invalid")
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
        """Return the place of a candidate: the first empty one, or that of the highest entropy if it is higher; None otherwise."""
        worst, place = self.entropies[label].max(dim=0)
        return int(place) if entropy < float(worst) else None

    def put(self, label: int, place: int, features: torch.Tensor, entropy: float) -> None:
        self.features[label, place] = features.detach()
        self.entropies[label, place] = entropy

    def similarities(self, features: torch.Tensor, label: int, place: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cosines to every place and which places count, with the candidate itself at (label, place)."""
        similar, filled = self.features @ features, self.filled
        if place is not None:
            similar[label, place] = features @ features
            filled[label, place] = True
        return similar, filled

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"features": self.features.clone(), "entropies": self.entropies.clone()}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content. Nothing changes if it cannot be that of a cache like this one."""
        require_names(tensors, ("features", "entropies"))
        features = stored(tensors, "features", torch.float32, self.features.shape)
        entropies = require_kind(tensors, "entropies", torch.float32, self.entropies.shape)
        # Rounding may leave an entropy slightly below zero. The comparison is false for NaN.
        if not bool((entropies > -1e-3).all()):
            raise Error("The stored cache is damaged: an entropy is negative or not a number.", code="state-damaged")
        require_unit(features, entropies < torch.inf, "cache")
        self.features.copy_(features)
        self.entropies.copy_(entropies)
