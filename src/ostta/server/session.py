"""One session: a stream of the pool, and what is remembered of it for people: counts, the last points, the last events."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from ..adapter import Adapter
from ..core.types import Event, Prediction
from ..guard.guard import Rung
from .engine import Json, Told
from .idempotency import AnswerCache
from .points import Counts, Happened, Point, Rate, finite
from .settings import Clock

# The sparkline: so many windows of so many images; the recent share is of the last of them.
WINDOWS, WINDOW, RECENT = 30, 20, 100
# After a restart numbers of events go on so much later: more than a killed process can have given out after its last save.
LATER = 2**24
LIGHTS = {
    Rung.CALM: "green",
    Rung.WARNED: "amber",
    Rung.SKIPPING: "amber",
    Rung.ROLLED_BACK: "red",
    Rung.FROZEN: "red",
}


class Session:
    """All of it is used on the thread of the event loop alone, but for the adapter, which is the pool's."""

    def __init__(self, id: str, name: str, adapter: Adapter, clock: Clock, points: int) -> None:
        self.id, self.name, self.adapter, self._clock = id, name, adapter, clock
        self.created = clock.wall()
        self.last_image: float | None = None
        self.counts = Counts()
        self.answers = AnswerCache()
        self.steps = self.saved_steps = adapter.steps
        self.warming_up = True
        self.problem: str | None = None
        self.points: deque[Point] = deque(maxlen=points)
        self.events: deque[Happened] = deque(maxlen=points)
        self.next_number = 1
        self.rate = Rate()
        # Counts up with everything that the overview shows.
        self.version = 0
        # No longer in this process: deleted, or moved to another.
        self.ended = False
        self._window = (0, 0)
        self._shares: deque[float] = deque(maxlen=WINDOWS)
        self._followers: set[asyncio.Event] = set()
        # What was forgotten last of points and events.
        self._forgotten = 0

    # --- what happens ---------------------------------------------------------------------------------------------------
    def judged(self, prediction: Prediction, step: int) -> None:
        """Remember an image that the session learned from, or could have."""
        now = self._clock.wall()
        self.steps, self.last_image, self.warming_up = step, now, prediction.warming_up
        counts = self.counts
        counts.images += 1
        self.rate.add(self._clock.steady())
        if prediction.verdict is None:
            counts.refused += 1
            self.changed()
            return
        if prediction.known:
            counts.accepted += 1
            counts.classes[str(prediction.label)] += 1
        else:
            counts.rejected += 1
        # Counted by the better guess too.
        counts.undecided += prediction.undecided
        images, accepted = self._window[0] + 1, self._window[1] + prediction.known
        if images == WINDOW:
            self._shares.append(round(accepted / images, 3))
            images = accepted = 0
        self._window = images, accepted
        if len(self.points) == self.points.maxlen:
            self._forgotten = max(self._forgotten, self.points[0].number)
        self.points.append(
            Point(
                self._number(),
                step,
                now,
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
                None if prediction.probability is None else self.adapter.acceptance.least[prediction.index],
            )
        )
        for event in prediction.events:
            self.happened(event, step, "guard")
        self.changed()

    def refused(self) -> None:
        """Remember that an image could not be read."""
        self.counts.images += 1
        self.counts.refused += 1
        self.changed()

    def happened(self, event: Event, step: int, kind: str) -> Happened:
        if len(self.events) == self.events.maxlen:
            self._forgotten = max(self._forgotten, self.events[0].number)
        told = Happened(self._number(), step, self._clock.wall(), event, kind)
        self.events.append(told)
        self.changed()
        return told

    def replaced(self, adapter: Adapter) -> None:
        """Go on with another state."""
        self.adapter, self.steps = adapter, adapter.steps
        self.restart()

    def restart(self) -> None:
        """Forget the points of the former state: their steps, scores and shares do not belong to those that follow."""
        self.warming_up = True
        self.points.clear()
        self._shares.clear()
        self._window = (0, 0)
        self._forgotten = self.next_number - 1
        self.changed()

    def changed(self) -> None:
        self.version += 1
        for follower in self._followers:
            follower.set()

    def _number(self) -> int:
        number = self.next_number
        self.next_number += 1
        return number

    # --- what is told -----------------------------------------------------------------------------------------------------
    def to_json(self) -> Json:
        """The session as the API has it."""
        adapter, counts = self.adapter, self.counts
        recent = list(self.points)[-RECENT:]
        share = round(sum(point.known for point in recent) / len(recent), 3) if recent else None
        shares: list[float | None] = list(self._shares)
        return {
            "id": self.id,
            "name": self.name,
            "classes": list(adapter.classes),
            "method": adapter.method_name,
            "score": adapter.score_name,
            "identifier": adapter.identifier_name,
            "profile": adapter.profile,
            "guard": adapter.guard is not None,
            "steps": self.steps,
            "images": counts.images,
            "accepted": counts.accepted,
            "rejected": counts.rejected,
            "refused": counts.refused,
            "undecided": counts.undecided,
            "accepted_share": share,
            "images_per_second": self.rate.value(self._clock.steady()),
            "frozen": adapter.frozen,
            "guard_light": "off" if adapter.guard is None else LIGHTS[adapter.guard.rung],
            "warming_up": self.warming_up,
            "class_counts": {name: counts.classes.get(name, 0) for name in adapter.classes},
            "sparkline": [None] * (WINDOWS - len(shares)) + shares,
            "created": self.created,
            "last_image": self.last_image,
            "saved_steps": self.saved_steps,
            "problem": self.problem,
            "unfamiliar": adapter.unfamiliar,
        }

    def recent(self, limit: int) -> Json:
        points, events = list(self.points), list(self.events)
        return {
            "points": [point.to_json() for point in points[-limit:]] if limit else [],
            "events": [event.to_json() for event in events[-limit:]] if limit else [],
        }

    def about(self) -> Json:
        """What is stored beside the state."""
        return {
            "name": self.name,
            "created": self.created,
            "last_image": self.last_image,
            "counts": self.counts.to_json(),
            "next_number": self.next_number,
            "answers": self.answers.to_json(),
            # What the overview of a cluster shows while no replica has the session.
            "shown": self.to_json(),
        }

    def take_over(self, about: Mapping[str, Any]) -> None:
        """What `about` gave, of an earlier process."""
        created, last, number = about.get("created"), about.get("last_image"), about.get("next_number")
        self.created = float(created) if isinstance(created, int | float) else self.created
        self.last_image = float(last) if isinstance(last, int | float) else None
        counts = about.get("counts")
        self.counts = Counts.of(counts if isinstance(counts, dict) else {})
        self.answers = AnswerCache.of(about.get("answers"))
        self.next_number = (number if type(number) is int and number > 0 else 1) + LATER
        self._forgotten = self.next_number - 1

    # --- following ----------------------------------------------------------------------------------------------------------
    def told_after(self, number: int) -> list[Told]:
        """What is still known of what came after that number, in order; a `gap` in front where something is not."""
        found: list[Point | Happened] = list(self._after(self.points, number))
        found += self._after(self.events, number)
        found.sort(key=lambda each: each.number)
        told = [
            Told(
                each.number,
                "prediction" if isinstance(each, Point) else each.kind,
                json.dumps(each.to_json(), ensure_ascii=False, separators=(",", ":")),
            )
            for each in found
        ]
        if number < self._forgotten or number >= self.next_number:
            first = found[0].number if found else self.next_number
            told.insert(0, Told(first - 1, "gap", json.dumps({"after": number, "next": first})))
        return told

    @staticmethod
    def _after(kept: deque[Any], number: int) -> list[Any]:
        """Those with a later number, from the end of the deque, as they are few."""
        found = []
        for each in reversed(kept):
            if each.number <= number:
                break
            found.append(each)
        return found[::-1]

    def follower(self) -> asyncio.Event:
        """Set whenever something happens, until `unfollow`."""
        event = asyncio.Event()
        self._followers.add(event)
        return event

    def unfollow(self, event: asyncio.Event) -> None:
        self._followers.discard(event)
