"""What a stream has been so far, in a memory that does not grow with it: counts, a timeline, the last scores, the last events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# A timeline has at most so many parts, and so many dots; then every two become one.
PARTS, DOTS = 240, 900
# So many of the last scores make a histogram, and so many of the last events are told.
RECENT, EVENTS = 512, 200


@dataclass(slots=True)
class Part:
    """Some images that came one after the other."""

    images: int = 0
    decided: int = 0
    accepted: int = 0
    thresholds: int = 0
    threshold_sum: float = 0.0

    @property
    def threshold(self) -> float | None:
        """The mean threshold; None where there was none."""
        return self.threshold_sum / self.thresholds if self.thresholds else None

    def joined(self, other: Part) -> Part:
        """Both as one."""
        return Part(
            self.images + other.images,
            self.decided + other.decided,
            self.accepted + other.accepted,
            self.thresholds + other.thresholds,
            self.threshold_sum + other.threshold_sum,
        )


@dataclass(frozen=True, slots=True)
class Dot:
    """The score of one image: which one of those that were seen, and whether it was accepted; None where it is undecided."""

    place: int
    score: float
    known: bool | None


class Happened(NamedTuple):
    """An event: the number of its row, how many images had been seen by then, and what happened."""

    row: int
    place: int
    event: dict[str, Any]


@dataclass(slots=True)
class Digest:
    """Counts and a timeline of the rows that were added so far.

    An image that came while the threshold was warming up is undecided: it counts as `seen` and `warming_up`, and neither as accepted
    nor as rejected.

    >>> digest = Digest()
    >>> digest.add({"row": 1, "image": "a.jpg", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 0.4})
    >>> digest.add({"row": 2, "image": "b.jpg", "error": "The image file 'b.jpg' is empty."})
    >>> digest.images, digest.seen, digest.accepted_share, dict(digest.classes), digest.unreadable
    (2, 1, 1.0, {'cat': 1}, 1)
    >>> digest.add({"row": 3, "image": "c.jpg", "label": "dog", "known": True, "verdict": "reliable_desired", "score": 0.4, "warming_up": True})
    >>> digest.seen, digest.decided, dict(digest.classes)
    (2, 1, {'cat': 1})
    """

    images: int = 0
    seen: int = 0
    accepted: int = 0
    unreadable: int = 0
    unseen: int = 0
    warming_up: int = 0
    adapted: int = 0
    threshold: float | None = None
    classes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    events: deque[Happened] = field(default_factory=lambda: deque(maxlen=EVENTS))
    recent: deque[tuple[float, bool | None]] = field(default_factory=lambda: deque(maxlen=RECENT))
    parts: list[Part] = field(default_factory=list)
    part_size: int = 1
    dots: list[Dot] = field(default_factory=list)
    dot_every: int = 1

    @property
    def decided(self) -> int:
        """Number of images that were accepted or rejected."""
        return self.seen - self.warming_up

    @property
    def rejected(self) -> int:
        """Number of images whose answer is "I don't know"."""
        return self.decided - self.accepted

    @property
    def accepted_share(self) -> float | None:
        """Share of accepted images among the decided ones; None before the first."""
        return self.accepted / self.decided if self.decided else None

    def add(self, row: Mapping[str, Any]) -> None:
        """One row, as a JSON line or the table has it."""
        self.images += 1
        for event in row.get("events") or ():
            self.kinds[str(event.get("kind"))] += 1
            self.events.append(Happened(row["row"], self.seen, event))
        if row.get("error"):
            self.unreadable += 1
            return
        if row.get("verdict") is None or row.get("score") is None:
            self.unseen += 1
            return
        known = None if row.get("warming_up") else bool(row["known"])
        if known is None:
            self.warming_up += 1
        elif known:
            self.accepted += 1
            self.classes[row["label"]] += 1
        self.adapted += bool(row.get("adapted"))
        self.threshold = row.get("threshold")
        self.recent.append((row["score"], known))
        self._place(row["score"], known)
        self.seen += 1

    def _place(self, score: float, known: bool | None) -> None:
        if _is_shown(self.seen, self.dot_every):
            self.dots.append(Dot(self.seen, score, known))
        if len(self.dots) >= DOTS:
            self.dot_every *= 2
            self.dots = [dot for dot in self.dots if _is_shown(dot.place, self.dot_every)]
        if not self.parts or self.parts[-1].images >= self.part_size:
            if len(self.parts) >= PARTS:
                self.part_size *= 2
                self.parts = [one.joined(other) for one, other in zip(self.parts[::2], self.parts[1::2], strict=True)]
            self.parts.append(Part())
        part = self.parts[-1]
        part.images += 1
        part.decided += known is not None
        part.accepted += known is True
        if self.threshold is not None:
            part.thresholds += 1
            part.threshold_sum += self.threshold


def _is_shown(place: int, every: int) -> bool:
    """Whether an image is among the one in `every` that is shown.

    The images are chosen by multiplicative hashing: one at regular intervals would show a stream of two alternating kinds as one kind.

    >>> [place for place in range(16) if _is_shown(place, 4)]
    [0, 2, 5, 10, 13]
    """
    return place * 2_654_435_769 % 2**32 < 2**32 // every
