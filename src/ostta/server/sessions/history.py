"""What people see of a session: counts, chart points, events, thumbnails."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.types import Event, Prediction
from ..engine import Json, Told
from ..settings import Clock
from .points import Counts, Happened, Point, Rate, finite
from .store import POINT, Entry

# The sparkline has `WINDOWS` shares of `WINDOW` images each. The recent share is that of the last `RECENT` images.
WINDOWS, WINDOW, RECENT = 30, 20, 100
# A process that was killed may have sent numbers after its last save. After a restart, numbers continue beyond them.
NUMBER_GAP = 2**24
# Images with a thumbnail, and thumbnails that are shown.
THUMBNAILS, SHOWN = 200, 12


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
        self.events: deque[Happened] = deque(maxlen=size)
        # Numbers from `_lost[0]` to below `_lost[1]` may have been sent by a process that was killed before it could store them.
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
        """Record an image that the session learned from, or could have; `accept` is the threshold of its class."""
        now, counts = self._clock.wall(), self.counts
        self.last_image, self.warming_up = now, prediction.warming_up
        counts.images += 1
        self._rate.add(self._clock.steady())
        if prediction.verdict is None:
            counts.refused += 1
            self.changed()
            return
        counts.add(prediction)
        images, accepted = self._window[0] + 1, self._window[1] + prediction.known
        if images == WINDOW:
            self._shares.append(round(accepted / images, 3))
            images = accepted = 0
        self._window = images, accepted
        self._drop_oldest(self.points)
        self.points.append(Point.of(prediction, self._number(), step, now, accept))
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
        self.events.append(Happened(self._number(), step, self._clock.wall(), event, kind))
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
        """Wake everybody who follows the session."""
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
        counts, recent = self.counts, list(self.points)[-RECENT:]
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
        """Return the "most" or "least" certain of the last images, by the distance of their score from the threshold."""
        ordered = sorted(
            self._thumbnails, key=lambda kept: abs(kept[1].score - (kept[1].threshold or 0.0)), reverse=which == "most"
        )
        return [
            {
                "step": step,
                "score": finite(prediction.score),
                "label": prediction.label,
                "known": prediction.known,
                "probability": finite(prediction.probability),
                "undecided": prediction.undecided,
                "thumbnail": f"data:image/jpeg;base64,{base64.b64encode(thumbnail).decode()}",
            }
            for step, prediction, thumbnail in ordered[:SHOWN]
        ]

    # --- storing ------------------------------------------------------------------------------------------------------
    def entries(self, after: int) -> list[Entry]:
        """Return the points and events with a number above `after`, as the store takes them."""
        found = [Entry(one.number, POINT, one.time, json.dumps(one)) for one in _after(self.points, after)]
        return found + [Entry(one.number, one.kind, one.time, one.to_text()) for one in _after(self.events, after)]

    def about(self) -> Json:
        """Return what is stored beside the entries."""
        return {
            "last_image": self.last_image,
            "counts": self.counts.to_json(),
            "next_number": self.next_number,
            "dropped": self._dropped,
            "warming_up": self.warming_up,
            "shares": list(self._shares),
            "window": list(self._window),
        }

    def restore(self, about: Mapping[str, Any], entries: Sequence[Entry], since: float) -> None:
        """Continue from what an earlier process stored; entries from before the time `since` are dropped."""
        last, number, counts = about.get("last_image"), about.get("next_number"), about.get("counts")
        self.last_image = float(last) if isinstance(last, int | float) else None
        self.counts = Counts.of(counts if isinstance(counts, dict) else {})
        stored = number if type(number) is int and number > 0 else 1
        self.next_number = stored + NUMBER_GAP
        self._lost = (stored, self.next_number - 1)
        self.warming_up = about.get("warming_up") is not False
        self._shares.extend(_numbers(about.get("shares")))
        window = [int(value) for value in _numbers(about.get("window"))]
        self._window = (window[0], window[1]) if len(window) == 2 and 0 <= window[1] <= window[0] < WINDOW else (0, 0)
        dropped = about.get("dropped")
        # An earlier version stored no entries, so that nothing before this start is known.
        self._dropped = dropped if type(dropped) is int else stored - 1
        for entry in entries:
            if entry.time < since:
                self._dropped = max(self._dropped, entry.number)
            elif entry.kind == POINT:
                self._drop_oldest(self.points)
                self.points.append(Point(*json.loads(entry.content)))
            else:
                self._drop_oldest(self.events)
                self.events.append(Happened.of(entry))

    # --- following ----------------------------------------------------------------------------------------------------
    def told_after(self, number: int) -> list[Told]:
        """Return what is known after that number, in order; a `gap` comes first if something is missing."""
        found: list[Point | Happened] = sorted(
            [*_after(self.points, number), *_after(self.events, number)], key=lambda each: each.number
        )
        told = [
            Told(
                each.number,
                POINT if isinstance(each, Point) else each.kind,
                json.dumps(each.to_json(), ensure_ascii=False, separators=(",", ":")),
            )
            for each in found
        ]
        if number < self._dropped or self._lost[0] <= number < self._lost[1] or number >= self.next_number:
            first = found[0].number if found else self.next_number
            told.insert(0, Told(first - 1, "gap", json.dumps({"after": number, "next": first})))
        return told

    def follow(self) -> asyncio.Event:
        """Return an event that is set with every change, until `unfollow`."""
        event = asyncio.Event()
        self._followers.add(event)
        return event

    def unfollow(self, event: asyncio.Event) -> None:
        self._followers.discard(event)


def _after(kept: deque[Any], number: int) -> list[Any]:
    """Return the entries with a higher number; read from the end, because there are few of them."""
    found = []
    for each in reversed(kept):
        if each.number <= number:
            break
        found.append(each)
    return found[::-1]


def _numbers(values: Any) -> list[float]:
    return [value for value in values if type(value) in (int, float)] if isinstance(values, list) else []
