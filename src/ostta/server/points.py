"""What is remembered of images and events, and how they are counted."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.types import Event
from .engine import Json

# Seconds that the rate looks back on.
SECONDS = 10


class Point(NamedTuple):
    """What is remembered of one image; a tuple, as there are many of them."""

    number: int
    step: int
    time: float
    score: float | None
    threshold: float | None
    mu_desired: float | None
    mu_undesired: float | None
    known: bool
    label: str | None
    best: str | None
    warming_up: bool
    probability: float | None
    undecided: bool
    # The smallest probability with which this image's class is accepted; None where there are no probabilities.
    accept: float | None

    def to_json(self) -> Json:
        content = self._asdict()
        del content["number"]
        return content


class Happened(NamedTuple):
    """An event that is remembered."""

    number: int
    step: int
    time: float
    event: Event
    # "guard" for what the guard did, "session" for the rest: what a person did, or the disk.
    kind: str

    def to_json(self) -> Json:
        told = self.event.to_dict()
        told["evidence"] = {name: finite(value) for name, value in told["evidence"].items()}
        return {"step": self.step, "time": self.time, **told}


def finite(value: float | None) -> float | None:
    """A number, or None where JSON has no word for it."""
    return value if value is not None and math.isfinite(value) else None


class Rate:
    """Images a second over the last seconds, whole ones; a clock that jumps back begins anew."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, int]] = deque(maxlen=SECONDS + 1)

    def add(self, now: float) -> None:
        second = int(now)
        if self._buckets and self._buckets[-1][0] == second:
            self._buckets[-1] = (second, self._buckets[-1][1] + 1)
            return
        if self._buckets and self._buckets[-1][0] > second:
            self._buckets.clear()
        self._buckets.append((second, 1))

    def value(self, now: float) -> float:
        last = int(now)
        seen = sum(count for second, count in self._buckets if last - SECONDS <= second < last)
        return round(seen / SECONDS, 2)


@dataclass(slots=True)
class Counts:
    """How many images of each kind there have been."""

    images: int = 0
    accepted: int = 0
    rejected: int = 0
    refused: int = 0
    undecided: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> Json:
        return {
            "images": self.images,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "refused": self.refused,
            "undecided": self.undecided,
            "classes": dict(self.classes),
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Counts:
        """What `to_json` gave; whatever else is in its place counts as nothing."""

        def whole(value: Any) -> int:
            return value if type(value) is int and value >= 0 else 0

        classes = content.get("classes")
        named = classes if isinstance(classes, dict) else {}
        return cls(
            images=whole(content.get("images")),
            accepted=whole(content.get("accepted")),
            rejected=whole(content.get("rejected")),
            refused=whole(content.get("refused")),
            undecided=whole(content.get("undecided")),
            classes=Counter({str(name): whole(count) for name, count in named.items()}),
        )
