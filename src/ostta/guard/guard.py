"""The guard of one adapter: it sees answers and snapshots, never labels, and says what is to be done.

The signals are looked at after every `patience` images. The ladder, one rung for each look at which a signal is out of its band:

    warn        nothing but a word
    skip        the method takes no update and stores no image
    roll back   to the last state that was kept before the signals look back on anything
    freeze      back to the start; the frozen model answers, while score and identifier get to know the stream again
    thaw        when no signal was out of its band for `cool_down` images
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import torch

from ..core.banks import named
from ..core.checks import Tensors, require_names, shown, split, stored
from ..core.types import Error, Event
from .options import GuardOptions
from .shadow import Judged, Shadow
from .signals import ANSWERS, Signals
from .snapshots import Snapshot, Snapshots

# So often the time until a thaw is doubled at the most.
LONGEST = 3
ABOUT = {
    "evenness": "nearly all accepted images are given to a few classes",
    "disagreement": "the frozen model says something else of most images",
    "gap": "the share of accepted images is far from the frozen model's",
    "estimate": "the accuracy, estimated from disagreement with the frozen model, is low",
    "step": "updates move the parameters too far at a time",
    "drift": "the parameters are far from the start",
    "not_finite": "several updates were not finite",
}


class Rung(IntEnum):
    """How far the guard has gone."""

    CALM = 0
    WARNED = 1
    SKIPPING = 2
    ROLLED_BACK = 3
    FROZEN = 4


class Guard:
    """What the guard remembers of one stream, and on which rung it is.

    >>> adapter = ostta.load("embedded", ["cat", "dog", "ship"])
    >>> adapter.step(image).events, adapter.guard.resting
    ((), False)
    """

    def __init__(self, options: GuardOptions, classifier: torch.Tensor) -> None:
        self.options, self._classifier = options, classifier
        self.signals = Signals(options, len(classifier))
        self.reset()

    def reset(self) -> None:
        """Back to the start, as `Adapter.reset`."""
        self.signals.reset()
        self.shadow = Shadow(self._classifier)
        self.snapshots = Snapshots(self.options.snapshots)
        self.rung = Rung.CALM
        # Images since the last look, and images in a row without a signal out of its band.
        self._since = self._calm = 0
        self._warned_of_separation = 0
        self._freezes = 0
        # Whether nothing that is trained has left the start, so that what the method sees is what the frozen model does.
        self.pristine = True

    @property
    def resting(self) -> bool:
        """Whether the frozen model answers."""
        return self.rung == Rung.FROZEN

    @property
    def skipping(self) -> bool:
        """Whether updates are left out."""
        return self.rung >= Rung.SKIPPING

    def wants_check(self, step: int) -> bool:
        """Whether the frozen model is to be asked about the image of this step, where that costs a pass of the tower."""
        return step % self.options.check_every == 0

    def check(self, known: bool, index: int, judged: Judged, step: int, every: bool) -> None:
        """Compare an answer with the frozen model's."""
        self.shadow.take(judged, step)
        self.signals.checked((int(known), index, int(judged.decision.desired), judged.index), every)

    def climb(self, step: int) -> list[Event]:
        """What is to be done after the image of this step."""
        self._since += 1
        if self._since < self.options.patience:
            return []
        values = self.signals.values()
        out = self.signals.out(values)
        events = self._warn_of_separation(values)
        self._calm, self._since = 0 if out else self._calm + self._since, 0
        if out and not self.resting:
            return [*events, self._next_rung(step, out)]
        if not out and self.rung > Rung.CALM and self._calm >= self._until_thaw():
            return [*events, *self._thawed(values)]
        return events

    def keeps(self, step: int) -> bool:
        """Whether a snapshot is due: all is well, and it is time."""
        return self.rung == Rung.CALM and step % self.options.snapshot_every == 0

    def good_snapshot(self, step: int) -> Snapshot | None:
        """The newest that is older than all that the signals look back on; later ones are dropped. None where there is none."""
        while (snapshot := self.snapshots.take_last()) is not None:
            if snapshot.step <= step - ANSWERS[0]:
                return snapshot
        return None

    def returned(self, to_start: bool) -> None:
        """The adapter is in an earlier state: what the later one did says nothing about it."""
        self.pristine = to_start
        self.signals.forget()
        if to_start:
            self.snapshots.clear()

    def froze(self) -> None:
        """The adapter is at the start."""
        self.rung = Rung.FROZEN
        self._freezes += 1
        self._since = self._calm = 0
        self.returned(to_start=True)

    def thaw(self) -> None:
        """By hand: from here on as if nothing had been."""
        self.rung = Rung.CALM
        self._since = self._calm = 0
        self.signals.reset()

    def _until_thaw(self) -> int:
        if self.rung < Rung.FROZEN:
            return 2 * self.options.patience
        times: int = 2 ** min(max(self._freezes - 1, 0), LONGEST)
        return self.options.cool_down * times

    def _next_rung(self, step: int, out: Mapping[str, float]) -> Event:
        self.rung = Rung(self.rung + 1)
        if self.rung == Rung.ROLLED_BACK and not any(kept.step <= step - ANSWERS[0] for kept in self.snapshots):
            self.rung = Rung.FROZEN
        why = " and ".join(ABOUT[name] for name in out)
        kinds = {Rung.WARNED: "warn", Rung.SKIPPING: "skip", Rung.ROLLED_BACK: "roll_back", Rung.FROZEN: "freeze"}
        done = {
            Rung.WARNED: "Something may be wrong",
            Rung.SKIPPING: "Updates are left out",
            Rung.ROLLED_BACK: "The last good state is back",
            Rung.FROZEN: "The adapter is back at the start, and the frozen model answers",
        }
        return Event(kinds[self.rung], f"{done[self.rung]}: {why}.", dict(out))

    def _thawed(self, values: Mapping[str, float]) -> list[Event]:
        before, self.rung = self.rung, Rung.CALM
        if before == Rung.WARNED:
            return []
        evidence = {name: values[name] for name in ("evenness", "disagreement") if name in values}
        what = "The adapter answers and learns again" if before == Rung.FROZEN else "Updates are taken again"
        return [Event("thaw", f"{what}: no signal was out of its band for {self._calm} images.", evidence)]

    def _warn_of_separation(self, values: Mapping[str, float]) -> list[Event]:
        """Once, until the means are apart again: known and unknown images may be hard to tell apart for a good reason."""
        found = values.get("separation", 1.0)
        closing = found < self.options.min_separation
        if closing == bool(self._warned_of_separation):
            return []
        self._warned_of_separation = int(closing)
        sentence = "The two means of the scores have come close to each other: known and unknown images look alike."
        return [Event("warn", sentence, {"separation": found})] if closing else []

    # --- state files --------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        """All of it, with the snapshots."""
        numbers = [
            int(self.rung), self._since, self._calm, self._warned_of_separation, self._freezes, int(self.pristine), len(self.snapshots),
        ]  # fmt: skip
        kept = {
            # Copies: a file holds no tensor twice, and an overlay may be in several snapshots.
            f"{place}/{name}": tensor.clone()
            for place, snapshot in enumerate(self.snapshots)
            for name, tensor in {"step": torch.tensor(snapshot.step), **snapshot.tensors}.items()
        }
        return named(
            numbers={"all": torch.tensor(numbers)},
            signals=self.signals.tensors(),
            shadow=self.shadow.tensors(),
            snapshots=kept,
        )

    def load(self, tensors: Tensors) -> None:
        """Replace all; refused where it cannot be a guard's. What is in a snapshot is checked by whoever returns to it."""
        numbers, signals, shadow, kept = split(tensors, "numbers", "signals", "shadow", "snapshots")
        require_names(numbers, ("all",))
        found = stored(numbers, "all", torch.int64, (7,), 0, 2**53).tolist()
        if found[0] > Rung.FROZEN or found[3] > 1 or found[5] > 1 or found[6] > self.options.snapshots:
            raise Error(f"The stored guard is damaged: its numbers {shown(found)} cannot be.")
        parts = split(kept, *map(str, range(found[6])))
        self.reset()
        for part in parts:
            step = int(stored({"step": part.pop("step", torch.tensor(-1))}, "step", torch.int64, (), 0, 2**53))
            self.snapshots.keep(Snapshot(step, part))
        self.signals.load(signals)
        self.shadow.load(shadow)
        self.rung, self._since, self._calm = Rung(found[0]), found[1], found[2]
        self._warned_of_separation, self._freezes, self.pristine = found[3], found[4], bool(found[5])
