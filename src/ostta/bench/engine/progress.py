"""How far a grid of runs has come, and how long the rest will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..spec import RunSpec, run_key
from .job import Ending, Outcome


@dataclass
class Active:
    """A run under way. `total` is 0 until the first word of it, at the time `first` and with `before` images done.

    Its speed is counted from there: starting takes long, and a run that goes on from a checkpoint has most images behind it.
    """

    spec: RunSpec
    began: float
    first: float = 0.0
    before: int = 0
    latest: float = 0.0
    done: int = 0
    total: int = 0

    @property
    def image_seconds(self) -> float | None:
        """Seconds an image, or None while they are unknown."""
        return (self.latest - self.first) / (self.done - self.before) if self.done > self.before else None


class GridProgress:
    """What is waiting, under way and ended. Time left is by what runs of the same method and backbone have taken so far."""

    def __init__(self, specs: Sequence[RunSpec], workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.workers, self._clock = len(specs), workers, clock
        self.waiting = {run_key(spec): spec for spec in specs}
        self.active: dict[str, Active] = {}
        self.ended: Counter[Outcome] = Counter()
        self._began = clock()
        self._taken: dict[tuple[str, str], list[float]] = {}

    def start(self, spec: RunSpec) -> None:
        key = run_key(spec)
        self.waiting.pop(key, None)
        self.active[key] = Active(spec, self._clock())

    def step(self, spec: RunSpec, done: int, total: int) -> None:
        run, now = self.active[run_key(spec)], self._clock()
        if not run.total:
            run.first, run.before = now, done
        run.latest, run.done, run.total = now, done, total

    def end(self, ending: Ending) -> None:
        self.waiting.pop(ending.key, None)
        run = self.active.pop(ending.key, None)
        self.ended[ending.state] += 1
        if run is not None and ending.state is Outcome.DONE:
            self._taken.setdefault(_kind(run.spec), []).append(self._clock() - run.began)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def finished(self) -> float:
        """Runs, those under way by the part of their images."""
        return sum(self.ended.values()) + sum(run.done / run.total for run in self.active.values() if run.total)

    @property
    def left(self) -> float | None:
        """Seconds, or None while nothing is known."""
        active = [self._left_of(run) for run in self.active.values()]
        waiting = [self._expected(spec) for spec in self.waiting.values()]
        known = [seconds for seconds in (*active, *waiting) if seconds is not None]
        if not known:
            return None if active or waiting else 0.0
        # What cannot be guessed yet counts as the mean of the rest. The last run cannot be shared between workers.
        work = sum(known) * (len(active) + len(waiting)) / len(known)
        return max(work / self.workers, *(seconds for seconds in active if seconds is not None), 0.0)

    def _left_of(self, run: Active) -> float | None:
        if run.image_seconds is not None:
            return run.image_seconds * (run.total - run.done)
        expected = self._expected(run.spec)
        return None if expected is None else max(0.0, expected - (self._clock() - run.began))

    def _expected(self, spec: RunSpec) -> float | None:
        """The mean of runs like it, else of those under way that are like it, else of all."""
        like = self._taken.get(_kind(spec)) or [
            run.first - run.began + run.image_seconds * run.total
            for run in self.active.values()
            if run.image_seconds is not None and _kind(run.spec) == _kind(spec)
        ]
        taken = like or [seconds for kind in self._taken.values() for seconds in kind]
        return sum(taken) / len(taken) if taken else None


def _kind(spec: RunSpec) -> tuple[str, str]:
    return spec.backbone, spec.method
