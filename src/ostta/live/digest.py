"""A summary of a stream in constant memory: counts, a timeline, the last scores and events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from operator import add
from typing import Any, NamedTuple

# Maximum number of parts and of dots of a timeline. When it is reached, adjacent parts are merged.
PARTS, DOTS = 240, 900
# Number of recent scores in the histogram, and number of stored recent events.
RECENT, EVENTS = 512, 200


@dataclass(slots=True)
class Part:
    """Consecutive images of a timeline."""

    images: int = 0
    decided: int = 0
    accepted: int = 0
    thresholds: int = 0
    threshold_sum: float = 0.0

    @property
    def threshold(self) -> float | None:
        """Mean threshold, or None if there are no thresholds."""
        return self.threshold_sum / self.thresholds if self.thresholds else None

    def joined(self, other: Part) -> Part:
        """Return the merged part."""
        return Part(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Dot:
    """One image of a timeline: position, value as in `Digest`, and whether it was accepted (None if undecided)."""

    place: int
    value: float
    known: bool | None


class PlacedEvent(NamedTuple):
    """An event: the number of its row, the number of images before it, and the event."""

    row: int
    place: int
    event: dict[str, Any]


@dataclass(slots=True)
class Digest:
    """Counts and a timeline of the rows that were added so far.

    An undecided image counts as `seen` and `undecided`, but neither as accepted nor as rejected. The values of the
    timeline are probabilities that the image is known if they are available (`has_probabilities`), otherwise scores.
    `threshold` is on the same scale. `accept` is the minimum probability of an accepted image, or None if it depends on
    the class.

    >>> digest = Digest()
    >>> cat = {"row": 1, "image": "a.jpg", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 0.4}
    >>> digest.add(cat)
    >>> digest.add({"row": 2, "image": "b.jpg", "error": "The image file 'b.jpg' is empty."})
    >>> digest.images, digest.seen, digest.accepted_share, dict(digest.classes), digest.unreadable
    (2, 1, 1.0, {'cat': 1}, 1)
    >>> digest.add({**cat, "row": 3, "image": "c.jpg", "label": "dog", "warming_up": True})
    >>> digest.seen, digest.decided, dict(digest.classes)
    (2, 1, {'cat': 1})
    """

    accept: float | None = 0.5
    images: int = 0
    seen: int = 0
    accepted: int = 0
    unreadable: int = 0
    unseen: int = 0
    undecided: int = 0
    has_probabilities: bool = False
    # Decided images with a probability, and the sum of min(p, 1 - p) over them.
    weighed: int = 0
    doubt_sum: float = 0.0
    adapted: int = 0
    threshold: float | None = None
    classes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    events: deque[PlacedEvent] = field(default_factory=lambda: deque(maxlen=EVENTS))
    recent: deque[tuple[float, bool | None]] = field(default_factory=lambda: deque(maxlen=RECENT))
    parts: list[Part] = field(default_factory=list)
    part_size: int = 1
    dots: list[Dot] = field(default_factory=list)
    dot_every: int = 1

    @property
    def decided(self) -> int:
        """Number of images that were accepted or rejected."""
        return self.seen - self.undecided

    @property
    def rejected(self) -> int:
        """Number of images classified as unknown."""
        return self.decided - self.accepted

    @property
    def accepted_share(self) -> float | None:
        """Share of accepted images among the decided images, or None if no image is decided."""
        return self.accepted / self.decided if self.decided else None

    @property
    def doubt(self) -> float | None:
        """Expected error rate: the mean of min(p, 1 - p) over decided images, or None without probabilities."""
        return self.doubt_sum / self.weighed if self.weighed else None

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one row of the journal or of a table."""
        self.images += 1
        for event in row.get("events") or ():
            self.kinds[str(event.get("kind"))] += 1
            self.events.append(PlacedEvent(row["row"], self.seen, event))
        if row.get("error"):
            self.unreadable += 1
            return
        if row.get("verdict") is None or row.get("score") is None:
            self.unseen += 1
            return
        known = None if is_undecided(row) else bool(row["known"])
        value, threshold, probability = row["score"], row.get("threshold"), row.get("probability")
        if probability is not None:
            value, threshold = probability, self.accept
            self.has_probabilities = True
            if known is not None:
                self.weighed += 1
                self.doubt_sum += min(probability, 1 - probability)
        if known is None:
            self.undecided += 1
        elif known:
            self.accepted += 1
            self.classes[row["label"]] += 1
        self.adapted += bool(row.get("adapted"))
        self.threshold = threshold
        self.recent.append((value, known))
        self._place(value, known)
        self.seen += 1

    def _place(self, value: float, known: bool | None) -> None:
        if _is_shown(self.seen, self.dot_every):
            self.dots.append(Dot(self.seen, value, known))
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


def is_undecided(row: Mapping[str, Any]) -> bool:
    """Return whether an image was not decided: `undecided` for rows with a probability, otherwise `warming_up`.

    >>> is_undecided({"probability": 0.9, "undecided": False, "warming_up": True}), is_undecided({"warming_up": True})
    (False, True)
    """
    return bool(row.get("warming_up") if row.get("probability") is None else row.get("undecided"))


def _is_shown(place: int, every: int) -> bool:
    """Return whether an image is in the sample of 1 / `every` of the images that is shown.

    The sample uses multiplicative hashing, because regular intervals would select a biased sample of an alternating
    stream.

    >>> [place for place in range(16) if _is_shown(place, 4)]
    [0, 2, 5, 10, 13]
    """
    return place * 2_654_435_769 % 2**32 < 2**32 // every
