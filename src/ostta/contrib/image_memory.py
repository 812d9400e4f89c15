"""Two kinds of memory for images themselves, as 8-bit levels, for a method that encodes them again later (CLIPTTA).

Both have fixed storage, which is allocated once. What is beside the pixels lives on the processor: it decides where pixels go.
"""

from __future__ import annotations

import math

import torch

from ..core.checks import MOST_BYTES, MOST_STEPS, require_names, stored, stored_count
from ..core.types import Error


class ImageBuffer:
    """The images since the last update, each with its class, or -1 where it was rejected."""

    def __init__(self, capacity: int, size: int, device: torch.device | None = None) -> None:
        self._pixels = _room("A buffer", capacity, size, device)
        self._labels = torch.full((capacity,), -1)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return self._pixels.numel()

    @property
    def full(self) -> bool:
        return self._count == len(self._pixels)

    @property
    def pixels(self) -> torch.Tensor:
        """Levels [count, 3, H, W], oldest first."""
        return self._pixels[: self._count]

    @property
    def labels(self) -> list[int]:
        labels: list[int] = self._labels[: self._count].tolist()
        return labels

    def push(self, pixels: torch.Tensor, label: int) -> None:
        self._pixels[self._count], self._labels[self._count] = pixels, label
        self._count += 1

    def clear(self) -> None:
        self._count = 0

    def tensors(self) -> dict[str, torch.Tensor]:
        pixels, labels = self._pixels.clone(), self._labels.clone()
        # What is left of earlier images is nobody's, and no part of the state.
        pixels[self._count :], labels[self._count :] = 0, -1
        return {"pixels": pixels, "labels": labels, "count": torch.tensor(self._count)}

    def load(self, tensors: dict[str, torch.Tensor], classes: int) -> None:
        """Replace the content; refused whole where it cannot be that of a buffer like this one."""
        require_names(tensors, ("pixels", "labels", "count"))
        count = stored_count(tensors, "count", len(self._pixels))
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, classes - 1)
        pixels = stored(tensors, "pixels", torch.uint8, self._pixels.shape)
        _require_zeros(pixels, torch.arange(len(labels)) < count)
        if bool((labels[count:] >= 0).any()):
            raise Error(
                "The stored buffer of images is damaged: its labels and `count` do not agree.", code="state-damaged"
            )
        self._pixels.copy_(pixels)
        self._labels.copy_(labels)
        self._count = count


class ImageMemory:
    """Confident images of each class: at most `depth` a class and `capacity` in all.

    Time is counted in accepted images. `place` says where a candidate would go without putting it there.
    """

    def __init__(self, capacity: int, depth: int, longest: int, size: int, device: torch.device | None = None) -> None:
        self._depth, self._longest = depth, longest
        self._pixels = _room("A memory", capacity, size, device)
        self._labels = torch.full((capacity,), -1)
        self._confidences = torch.zeros(capacity)
        self._times = torch.zeros(capacity, dtype=torch.long)

    def __len__(self) -> int:
        return int((self._labels >= 0).sum())

    @property
    def bytes(self) -> int:
        return self._pixels.numel()

    def place(self, label: int, confidence: float, now: int) -> int | None:
        """The place that a candidate would take; None if it has none.

        A class with room takes the first empty place or, where all are taken, that of the oldest image. A full class gives up its
        oldest image if that is older than `longest`, or else its least confident one, unless the candidate is less confident; the
        oldest among equals.
        """
        own = (self._labels == label).nonzero().flatten()
        if len(own) < self._depth:
            taken = len(self)
            return taken if taken < len(self._labels) else int(self._times.argmin())
        oldest = int(own[self._times[own].argmin()])
        if now - int(self._times[oldest]) > self._longest:
            return oldest
        least = self._confidences[own].min()
        weakest = own[self._confidences[own] == least]
        # Compared as it would be stored, so that equal is equal.
        as_good = bool(least.new_tensor(confidence) >= least)
        return int(weakest[self._times[weakest].argmin()]) if as_good else None

    def put(self, place: int, pixels: torch.Tensor, label: int, confidence: float, now: int) -> None:
        self._pixels[place], self._labels[place] = pixels, label
        self._confidences[place], self._times[place] = confidence, now

    def drawn(self, count: int, turn: int) -> torch.Tensor:
        """At most `count` images, levels [.., 3, H, W], as many of each class as there can be: class by class, from `turn` on."""
        classes = sorted(set(self._labels[self._labels >= 0].tolist()))
        places = [(self._labels == label).nonzero().flatten().tolist() for label in classes]
        chosen: list[int] = []
        for number in range(turn * count, turn * count + count) if classes else ():
            own = places[number % len(classes)]
            chosen.append(own[number // len(classes) % len(own)])
        return self._pixels[list(dict.fromkeys(chosen))]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "pixels": self._pixels.clone(),
            "labels": self._labels.clone(),
            "confidences": self._confidences.clone(),
            "times": self._times.clone(),
        }

    def load(self, tensors: dict[str, torch.Tensor], classes: int, now: int) -> None:
        """Replace the content; refused whole where it cannot be that of a memory like this one after `now` accepted images."""
        require_names(tensors, ("pixels", "labels", "confidences", "times"))
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, classes - 1)
        confidences = stored(tensors, "confidences", torch.float32, labels.shape, 0, 1)
        times = stored(tensors, "times", torch.int64, labels.shape, 0, min(now, MOST_STEPS))
        pixels = stored(tensors, "pixels", torch.uint8, self._pixels.shape)
        filled = labels >= 0
        _require_zeros(pixels, filled)
        if not bool((filled == (torch.arange(len(labels)) < filled.sum())).all()):
            raise Error(
                "The stored memory of images is damaged: it has an empty place before a taken one.",
                code="state-damaged",
            )
        if bool(((confidences > 0) & ~filled).any()) or bool(((times > 0) & ~filled).any()):
            raise Error("The stored memory of images is damaged: an empty place must hold zeros.", code="state-damaged")
        if bool(filled.any()) and int(labels[filled].bincount().max()) > self._depth:
            raise Error(
                f"The stored memory of images is damaged: a class has more than {self._depth} images.",
                code="state-damaged",
            )
        for own, new in zip(
            (self._pixels, self._labels, self._confidences, self._times),
            (pixels, labels, confidences, times),
            strict=True,
        ):
            own.copy_(new)


def _room(what: str, capacity: int, size: int, device: torch.device | None) -> torch.Tensor:
    shape = (capacity, 3, size, size)
    if math.prod(shape) > MOST_BYTES:
        raise Error(
            f"{what} of {capacity:,} images of {size} x {size} would take {math.prod(shape) / 2**30:,.1f} GiB, and at most "
            f"{MOST_BYTES // 2**30} GiB are given: choose smaller options.",
            code="memory-limit",
        )
    return torch.zeros(shape, dtype=torch.uint8, device=device)


def _require_zeros(pixels: torch.Tensor, filled: torch.Tensor) -> None:
    if bool(pixels[~filled].any()):
        raise Error("The stored images are damaged: empty places must hold zeros.", code="state-damaged")
