"""Counts, chart points, events and thumbnails of a session, and the totals of a server for `/metrics`."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ...core.types import Event, Prediction, finite
from ..engine import Json, SentEvent
from ..settings import Clock
from .store import POINT, Entry

# The sparkline has `WINDOWS` shares of `WINDOW` images each. The recent share is that of the last `RECENT` images.
WINDOWS, WINDOW, RECENT = 30, 20, 100
# Seconds over which the rate of images is computed.
RATE_SECONDS = 10
# A process that was killed may have sent numbers after its last save. After a restart, numbers continue beyond them.
NUMBER_GAP = 2**24
# Images with a thumbnail, and thumbnails that are shown.
THUMBNAILS, SHOWN = 200, 12


@dataclass(slots=True)
class Totals:
    """Waiting images, and totals since the start of the process."""

    sessions_unreadable: int = 0
    images_waiting: int = 0
    images_judged_total: int = 0
    images_undecided_total: int = 0
    images_with_probability_total: int = 0
    probability_sum_total: float = 0.0
    guard_events_total: int = 0
    saves_total: int = 0
    save_failures_total: int = 0

    def add(self, prediction: Prediction) -> None:
        """Count an image that was judged with learning."""
        self.images_judged_total += 1
        self.images_undecided_total += prediction.warming_up
        if prediction.probability is not None:
            self.images_with_probability_total += 1
            self.probability_sum_total += prediction.probability
        self.guard_events_total += len(prediction.events)


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

    def to_json(self) -> Json:
        content = self._asdict()
        del content["number"]
        return content


# Fields of a point that are copied from the prediction.
_COPIED = Point._fields[3:-1]
# Fields of a prediction that are shown beside its thumbnail.
_SHOWN = ("score", "label", "known", "probability", "undecided")


class PastEvent(NamedTuple):
    """An event with its place in the history."""

    number: int
    step: int
    time: float
    event: Event
    # "guard" for what the guard did, "session" for what a person or the store did.
    kind: str

    def to_json(self) -> Json:
        content: Json = finite(self.event.to_dict())
        return {"step": self.step, "time": self.time, **content}


@dataclass
class Counts:
    """Numbers of images by outcome."""

    images: int = 0
    accepted: int = 0
    rejected: int = 0
    refused: int = 0
    undecided: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, prediction: Prediction) -> None:
        """Count a prediction with a verdict, as `ostta stream` does: undecided, accepted or rejected."""
        if prediction.warming_up:
            self.undecided += 1
        elif prediction.known:
            self.accepted += 1
            self.classes[str(prediction.label)] += 1
        else:
            self.rejected += 1


@dataclass
class _Kept:
    """The content of `History.about`."""

    last_image: float | None = None
    counts: Counts = field(default_factory=Counts)
    next_number: int = 1
    dropped: int = 0
    warming_up: bool = True
    shares: list[float] = field(default_factory=list)
    window: tuple[int, int] = (0, 0)


# What is stored may be damaged, and a value of another type would fail much later.
_KEPT, _POINT, _EVENT = TypeAdapter(_Kept), TypeAdapter(Point), TypeAdapter(Event)


class Rate:
    """Images per second over the last whole seconds. The count restarts if the clock jumps back."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, int]] = deque(maxlen=RATE_SECONDS + 1)

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
        seen = sum(count for second, count in self._buckets if last - RATE_SECONDS <= second < last)
        return round(seen / RATE_SECONDS, 2)


class History:
    """The recent past of one session, in bounded memory. Used on the event loop only."""

    def __init__(self, clock: Clock, size: int) -> None:
        self._clock = clock
        self.counts = Counts()
        self.last_image: float | None = None
        self.warming_up = True
        # Increases with every change that the overview shows.
        self.version = 0
        self.next_number = 1
        self.points: deque[Point] = deque(maxlen=size)
        self.events: deque[PastEvent] = deque(maxlen=size)
        # Numbers from `_lost[0]` to below `_lost[1]` may have been sent by a process that was killed before it could
        # store them.
        self._lost = (0, 0)
        # The highest number of a point or an event that was dropped.
        self._dropped = 0
        self._rate = Rate()
        self._window = (0, 0)
        self._shares: deque[float] = deque(maxlen=WINDOWS)
        self._thumbnails: deque[tuple[int, Prediction, bytes]] = deque(maxlen=THUMBNAILS)
        self._followers: set[asyncio.Event] = set()

    # --- recording ----------------------------------------------------------------------------------------------------
    def add(self, prediction: Prediction, step: int, accept: float | None, thumbnail: bytes | None = None) -> None:
        """Record an image that was sent with learning; `accept` is the smallest accepted probability of its class."""
        now, counts = self._clock.wall(), self.counts
        self.last_image, self.warming_up = now, prediction.warming_up
        counts.images += 1
        self._rate.add(self._clock.steady())
        if prediction.verdict is None:
            counts.refused += 1
            self.changed()
            return
        counts.add(prediction)
        images, accepted = self._window
        if not prediction.warming_up:
            images, accepted = images + 1, accepted + prediction.known
        if images == WINDOW:
            self._shares.append(round(accepted / images, 3))
            images = accepted = 0
        self._window = images, accepted
        self._drop_oldest(self.points)
        copied = (finite(getattr(prediction, name)) for name in _COPIED)
        self.points.append(Point._make((self._number(), step, now, *copied, accept)))
        for event in prediction.events:
            self.add_event(event, step, "guard")
        if thumbnail is not None:
            self._thumbnails.append((step, prediction, thumbnail))
        self.changed()

    def add_refused(self) -> None:
        """Record an image that could not be read."""
        self.counts.images += 1
        self.counts.refused += 1
        self.changed()

    def add_event(self, event: Event, step: int, kind: str = "session") -> None:
        """Record an event: "guard" for what the guard did, "session" for what a person or the store did."""
        self._drop_oldest(self.events)
        self.events.append(PastEvent(self._number(), step, self._clock.wall(), event, kind))
        self.changed()

    def restart(self) -> None:
        """Drop the points of the former state: their steps and scores do not belong to those that follow."""
        self.warming_up = True
        self.points.clear()
        self._shares.clear()
        self._window = (0, 0)
        self._dropped = self.next_number - 1
        self.changed()

    def changed(self) -> None:
        """Wake all followers of the session."""
        self.version += 1
        for follower in self._followers:
            follower.set()

    def _number(self) -> int:
        number = self.next_number
        self.next_number += 1
        return number

    def _drop_oldest(self, kept: deque[Any]) -> None:
        if len(kept) == kept.maxlen:
            self._dropped = max(self._dropped, kept[0].number)

    # --- showing ------------------------------------------------------------------------------------------------------
    def to_json(self) -> Json:
        """Return the fields of a session that come from its history."""
        counts, recent = self.counts, [point for point in self.points if not point.warming_up][-RECENT:]
        shares: list[float | None] = list(self._shares)
        return {
            "images": counts.images,
            "accepted": counts.accepted,
            "rejected": counts.rejected,
            "refused": counts.refused,
            "undecided": counts.undecided,
            "accepted_share": round(sum(point.known for point in recent) / len(recent), 3) if recent else None,
            "images_per_second": self._rate.value(self._clock.steady()),
            "warming_up": self.warming_up,
            "sparkline": [None] * (WINDOWS - len(shares)) + shares,
            "last_image": self.last_image,
        }

    def recent(self, limit: int) -> Json:
        """Return the last points and events, at most `limit` of each."""
        points, events = list(self.points), list(self.events)
        return {
            "points": [point.to_json() for point in points[-limit:]] if limit else [],
            "events": [event.to_json() for event in events[-limit:]] if limit else [],
        }

    def thumbnails(self, which: str) -> list[Json]:
        """Return the "most" or "least" certain of the last images; undecided images come last."""
        sign = -1 if which == "most" else 1
        ordered = sorted(self._thumbnails, key=lambda kept: (kept[1].warming_up, sign * _certainty(kept[1])))
        return [
            {
                "step": step,
                **{name: finite(getattr(prediction, name)) for name in _SHOWN},
                "thumbnail": f"data:image/jpeg;base64,{base64.b64encode(thumbnail).decode()}",
            }
            for step, prediction, thumbnail in ordered[:SHOWN]
        ]

    # --- storing ------------------------------------------------------------------------------------------------------
    def entries(self, after: int) -> list[Entry]:
        """Return the points and events with a number above `after`, as the store takes them."""
        entries = [Entry(point.number, POINT, point.time, json.dumps(point)) for point in _after(self.points, after)]
        for past in _after(self.events, after):
            content = json.dumps({"step": past.step, **past.event.to_dict()}, ensure_ascii=False)
            entries.append(Entry(past.number, past.kind, past.time, content))
        return entries

    def about(self) -> Json:
        """Return what is stored beside the entries."""
        return {
            "last_image": self.last_image,
            "counts": {**vars(self.counts), "classes": dict(self.counts.classes)},
            "next_number": self.next_number,
            "dropped": self._dropped,
            "warming_up": self.warming_up,
            "shares": list(self._shares),
            "window": list(self._window),
        }

    def restore(self, about: Mapping[str, Any], entries: Sequence[Entry], since: float) -> None:
        """Continue from what an earlier process stored; entries from before the time `since` are dropped."""
        kept = _KEPT.validate_json(json.dumps(about), strict=True)
        number = kept.next_number
        self.last_image, self.warming_up, self.counts = kept.last_image, kept.warming_up, kept.counts
        self.next_number = number + NUMBER_GAP
        self._lost = (number, self.next_number - 1)
        self._shares.extend(kept.shares)
        self._window = kept.window
        self._dropped = kept.dropped
        for entry in entries:
            if entry.time < since:
                self._dropped = max(self._dropped, entry.number)
            elif entry.kind == POINT:
                self._drop_oldest(self.points)
                self.points.append(_POINT.validate_json(entry.content))
            else:
                self._drop_oldest(self.events)
                content = json.loads(entry.content)
                step, event = int(content.pop("step")), _EVENT.validate_python(content)
                self.events.append(PastEvent(entry.number, step, entry.time, event, entry.kind))

    # --- following ----------------------------------------------------------------------------------------------------
    def events_after(self, number: int) -> list[SentEvent]:
        """Return the points and events after that number, in order; a `gap` comes first if something is missing."""
        entries: list[Point | PastEvent] = sorted(
            [*_after(self.points, number), *_after(self.events, number)], key=lambda each: each.number
        )
        events = [
            SentEvent(
                each.number,
                POINT if isinstance(each, Point) else each.kind,
                json.dumps(each.to_json(), ensure_ascii=False, separators=(",", ":")),
            )
            for each in entries
        ]
        if number < self._dropped or self._lost[0] <= number < self._lost[1] or number >= self.next_number:
            first = entries[0].number if entries else self.next_number
            events.insert(0, SentEvent(first - 1, "gap", json.dumps({"after": number, "next": first})))
        return events

    def follow(self) -> asyncio.Event:
        """Return an event that is set with every change, until `unfollow`."""
        event = asyncio.Event()
        self._followers.add(event)
        return event

    def unfollow(self, event: asyncio.Event) -> None:
        self._followers.discard(event)


def _certainty(prediction: Prediction) -> float:
    """Return the distance of the probability from 0.5, or without a probability that of score and threshold."""
    if prediction.probability is not None:
        return abs(prediction.probability - 0.5)
    return abs(prediction.score - (prediction.threshold or 0.0))


def _after(kept: deque[Any], number: int) -> list[Any]:
    """Return the entries with a higher number; read from the end, because there are few of them."""
    return list(takewhile(lambda each: each.number > number, reversed(kept)))[::-1]
