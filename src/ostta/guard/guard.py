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
from ..core.types import Decision, Error, Event
from .options import GuardOptions
from .shadow import Judged, Shadow
from .signals import ACCEPTED, Check, Signals
from .snapshots import Snapshot, Snapshots

# So often the time until a thaw is doubled at the most.
LONGEST = 3
# What each signal reports, when that is expected, and the option that allows it. The numbers are those of `Signals.values`.
MESSAGES = {
    "evenness": (
        "accepted images are spread over {classes_used:.1f} classes, {frozen_classes_used:.1f} by the frozen model "
        "(effective numbers)",
        "If the images show few classes, which the frozen model confuses with others, this is expected; "
        "`min_evenness=0` turns this check off.",
    ),
    "diversity": (
        "accepted images are of few classes ({classes_trained_on:.1f}, effective number), and training on these would harm the others",
        "If the images show few of the classes, this is expected, and the adapter answers as before; `min_diversity=0` trains "
        "nevertheless.",
    ),
    "disagreement": (
        "the frozen model judges {disagreement:.0%} of the images differently",
        "If the frozen model is wrong on most of these images, this is expected; `max_disagreement=1` turns this check off.",
    ),
    "gap": (
        "{share:.0%} of the images are accepted, {frozen_share:.0%} by the frozen model",
        "If nearly all images are known, or nearly all are unknown, this is expected; `max_gap=1` turns this check off.",
    ),
    "estimate": (
        "the estimated accuracy is {estimate:.0%}",
        "It is estimated from the disagreement with the frozen model. If the frozen model is wrong on most of these images, this "
        "is expected; `min_estimate=0` turns this check off.",
    ),
    "step": (
        "an update moves the parameters by {step:.2g} of their norm",
        "If the learning rate is intended, this is expected; a higher `max_step` allows it.",
    ),
    "drift": (
        "the parameters are {drift:.2g} of their norm away from the start",
        "After many updates on images unlike the training images, this is expected; a higher `max_drift` allows it.",
    ),
    "not_finite": (
        "{not_finite:.0f} recent updates were not finite",
        "A lower learning rate avoids this; the check has no option.",
    ),
}


class Rung(IntEnum):
    """How far the guard has gone."""

    CALM = 0
    WARNED = 1
    SKIPPING = 2
    ROLLED_BACK = 3
    FROZEN = 4


# The kind of the event that leads to each rung, and what the adapter does.
ACTIONS = {
    Rung.WARNED: ("warn", "Possible problem"),
    Rung.SKIPPING: ("skip", "Updates are skipped"),
    Rung.ROLLED_BACK: ("roll_back", "The last good state is restored"),
    Rung.FROZEN: ("freeze", "The adapter is reset, and the frozen model answers"),
}


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

    def check(
        self, decision: Decision, index: int, judged: Judged, step: int, every: bool, undecided: bool = False
    ) -> None:
        """Compare a decision and a class with the frozen model's; an undecided image is not compared."""
        self.shadow.take(judged, step)
        if not undecided:
            self.signals.checked(Check.of(decision, index, judged.decision, judged.index), every)

    def climb(self, step: int) -> list[Event]:
        """What is to be done after the image of this step."""
        self._since += 1
        if self._since < self.options.patience:
            return []
        values = self.signals.values()
        out = self.signals.out(values)
        events = self._warn_of_separation(values)
        # A state that was restored is in order only once it has been compared with the frozen model.
        unknown = self.rung >= Rung.ROLLED_BACK and "disagreement" not in values
        self._calm, self._since = 0 if out or unknown else self._calm + self._since, 0
        if out.keys() == {"diversity"} and self.skipping:
            return events
        if out and not self.resting:
            return [*events, self._next_rung(step, out, values)]
        if not out and self.rung > Rung.CALM and self._calm >= self._until_thaw():
            return [*events, *self._thawed(values)]
        return events

    def keeps(self, step: int) -> bool:
        """Whether a snapshot is due: all is well, and it is time."""
        return self.rung == Rung.CALM and step % self.options.snapshot_every == 0

    def good_snapshot(self, step: int) -> Snapshot | None:
        """The newest that is older than all that the signals look back on; later ones are dropped. None where there is none."""
        while (snapshot := self.snapshots.take_last()) is not None:
            if snapshot.step <= step - ACCEPTED[0]:
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

    def _next_rung(self, step: int, out: Mapping[str, float], values: Mapping[str, float]) -> Event:
        self.rung = Rung(self.rung + 1)
        if self.rung == Rung.ROLLED_BACK and not any(kept.step <= step - ACCEPTED[0] for kept in self.snapshots):
            self.rung = Rung.FROZEN
        kind, action = ACTIONS[self.rung]
        reasons = " and ".join(MESSAGES[name][0].format(**values) for name in out)
        expected = " ".join(MESSAGES[name][1] for name in out)
        return Event(kind, f"{action}: {reasons}. {expected}", dict(out))

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
        sentence = (
            f"The two means of the scores are {found:.0%} of their usual distance apart. If known and unknown images look more alike "
            "than before, this is expected; `min_separation=0` turns this warning off."
        )
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
