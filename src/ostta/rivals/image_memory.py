"""A buffer and a memory for images, stored as 8-bit levels, for methods that encode them again later (CLIPTTA).

Both have fixed storage, which is allocated once. Labels, confidences and times stay in main memory, because they
determine where pixels are stored.
"""

from __future__ import annotations

import torch

from ..core.checks import MOST_STEPS, require_intact, require_names, require_room, stored, stored_count


class ImageBuffer:
    """The images since the last update, each with its class, or -1 if it was rejected."""

    def __init__(self, capacity: int, size: int, device: torch.device | None = None) -> None:
        self._pixels = _empty_images("A buffer of images", capacity, size, device)
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
        # Pixels of earlier images beyond the current count are not part of the state.
        pixels[self._count :], labels[self._count :] = 0, -1
        return {"pixels": pixels, "labels": labels, "count": torch.tensor(self._count)}

    def load(self, tensors: dict[str, torch.Tensor], classes: int) -> None:
        """Replace the content. Raise an Error and change nothing if the content does not fit this buffer."""
        require_names(tensors, ("pixels", "labels", "count"))
        count = stored_count(tensors, "count", len(self._pixels))
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, classes - 1)
        pixels = stored(tensors, "pixels", torch.uint8, self._pixels.shape)
        _require_zeros(pixels[count:])
        require_intact((labels[count:] < 0).all(), "buffer of images", "its labels and `count` do not agree")
        self._pixels.copy_(pixels)
        self._labels.copy_(labels)
        self._count = count


class ImageMemory:
    """Confident images of each class: at most `depth` per class and `capacity` in total.

    Time is counted in accepted images. `place` returns the position of a candidate without storing it.
    """

    def __init__(self, capacity: int, depth: int, longest: int, size: int, device: torch.device | None = None) -> None:
        self._depth, self._longest = depth, longest
        self._pixels = _empty_images("A memory of images", capacity, size, device)
        self._labels = torch.full((capacity,), -1)
        self._confidences = torch.zeros(capacity)
        self._times = torch.zeros(capacity, dtype=torch.long)

    def __len__(self) -> int:
        return int((self._labels >= 0).sum())

    @property
    def bytes(self) -> int:
        return self._pixels.numel()

    def place(self, label: int, confidence: float, now: int) -> int | None:
        """Return the position that a candidate would take; None if it would not be stored.

        A class with fewer than `depth` images gets the first empty position or, if there is none, that of the oldest
        image. A full class replaces its oldest image if that is older than `longest`. Otherwise it replaces its least
        confident image (the oldest of several), unless the candidate is less confident.
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
        # Compared in the precision of the stored values, so that equal confidences compare equal.
        as_good = bool(least.new_tensor(confidence) >= least)
        return int(weakest[self._times[weakest].argmin()]) if as_good else None

    def put(self, place: int, pixels: torch.Tensor, label: int, confidence: float, now: int) -> None:
        self._pixels[place], self._labels[place] = pixels, label
        self._confidences[place], self._times[place] = confidence, now

    def drawn(self, count: int, turn: int) -> torch.Tensor:
        """Return at most `count` images, levels [.., 3, H, W], balanced over the classes; `turn` sets the start."""
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
        """Replace the content. Raise an Error and change nothing if it does not fit after `now` accepted images."""
        require_names(tensors, ("pixels", "labels", "confidences", "times"))
        labels = stored(tensors, "labels", torch.int64, self._labels.shape, -1, classes - 1)
        confidences = stored(tensors, "confidences", torch.float32, labels.shape, 0, 1)
        times = stored(tensors, "times", torch.int64, labels.shape, 0, min(now, MOST_STEPS))
        pixels = stored(tensors, "pixels", torch.uint8, self._pixels.shape)
        count = int((labels >= 0).sum())
        for part in (pixels, confidences, times):
            _require_zeros(part[count:])
        require_intact((labels[:count] >= 0).all(), "memory of images", "it has an empty place before a filled one")
        per_class = labels[:count].bincount(minlength=1).max()
        require_intact(per_class <= self._depth, "memory of images", f"a class has more than {self._depth} images")
        self._pixels.copy_(pixels)
        self._labels.copy_(labels)
        self._confidences.copy_(confidences)
        self._times.copy_(times)


def _empty_images(what: str, capacity: int, size: int, device: torch.device | None) -> torch.Tensor:
    shape = (capacity, 3, size, size)
    require_room(what, shape, bytes_each=1)
    return torch.zeros(shape, dtype=torch.uint8, device=device)


def _require_zeros(empty: torch.Tensor) -> None:
    require_intact(not empty.any(), "memory of images", "an empty place must hold zeros")
