"""Chart points, events and counters of a session."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.types import Event, Prediction
from ..engine import Json
from .store import Entry

# Seconds over which the rate is computed.
SECONDS = 10


class Point(NamedTuple):
    """One image in the charts; a tuple, because there are many of them."""

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
    # The smallest probability with which this image's class is accepted; None if there are no probabilities.
    accept: float | None

    @classmethod
    def of(cls, prediction: Prediction, number: int, step: int, time: float, accept: float | None) -> Point:
        return cls(
            number,
            step,
            time,
            finite(prediction.score),
            finite(prediction.threshold),
            finite(prediction.mu_desired),
            finite(prediction.mu_undesired),
            prediction.known,
            prediction.label,
            prediction.best,
            prediction.warming_up,
            finite(prediction.probability),
            prediction.undecided,
            accept,
        )

    def to_json(self) -> Json:
        content = self._asdict()
        del content["number"]
        return content


class Happened(NamedTuple):
    """An event with its place in the history."""

    number: int
    step: int
    time: float
    event: Event
    # "guard" for what the guard did, "session" for what a person or the store did.
    kind: str

    def to_json(self) -> Json:
        told = self.event.to_dict()
        told["evidence"] = {name: finite(value) for name, value in told["evidence"].items()}
        return {"step": self.step, "time": self.time, **told}

    def to_text(self) -> str:
        """The content of an entry of the store."""
        return json.dumps({"step": self.step, **self.event.to_dict()}, ensure_ascii=False)

    @classmethod
    def of(cls, entry: Entry) -> Happened:
        content = json.loads(entry.content)
        step = content.pop("step")
        return cls(entry.number, step, entry.time, Event(**content), entry.kind)


def finite(value: float | None) -> float | None:
    """Return the number, or None for infinity and NaN, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


class Rate:
    """Images per second over the last whole seconds. The count restarts if the clock jumps back."""

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
    """Numbers of images by outcome."""

    images: int = 0
    accepted: int = 0
    rejected: int = 0
    refused: int = 0
    undecided: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, prediction: Prediction) -> None:
        """Count a prediction with a verdict; an undecided one also counts as accepted or rejected."""
        if prediction.known:
            self.accepted += 1
            self.classes[str(prediction.label)] += 1
        else:
            self.rejected += 1
        self.undecided += prediction.undecided

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
        """Return the counts that `to_json` described; values of another form count as 0."""

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
