"""The guard of one adapter.

The signals are checked after every `patience` images. Each check with a signal out of its band moves the guard up by
one rung:

    warn        report an event
    skip        skip all updates of the method and store no images
    roll back   restore the newest snapshot from before the images that the signals out of their bands cover
    freeze      restart the adapter and use the predictions of the frozen model, while score and identifier adapt to the
                stream; the guard is resting
    thaw        resume after `cool_down` images without a signal out of its band
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import torch

from ..core.banks import named
from ..core.checks import MOST_STEPS, Tensors, require_intact, require_names, shown, split, stored, stored_count
from ..core.optimisers import StepResult
from ..core.overlay import Overlay, distance
from ..core.types import Error, Event, ViewSource
from ..identifiers.lda import LDAOptions
from ..memory import Memory, Turn
from .options import GuardOptions
from .shadow import Shadow
from .signals import Check, Signals

EncodeFrozen = Callable[[ViewSource], torch.Tensor]

# Maximum number of times that the waiting time until a thaw is doubled.
MAX_DOUBLINGS = 3
# Message of each signal, when the signal is expected, and the option that allows it. The numbers are those of
# `Signals.values`.
MESSAGES = {
    "evenness": (
        "accepted images are spread over {classes_used:.1f} classes, {frozen_classes_used:.1f} by the frozen model "
        "(effective numbers)",
        "If the images show few classes, which the frozen model confuses with others, this is expected; "
        "`min_evenness=0` turns this check off.",
    ),
    "diversity": (
        "accepted images are of few classes ({classes_trained_on:.1f}, effective number), and training on these would "
        "harm the others",
        "If the images show few of the classes, this is expected, and the adapter answers as before; "
        "`min_diversity=0` trains nevertheless.",
    ),
    "disagreement": (
        "the frozen model judges {disagreement:.0%} of the images differently",
        "If the frozen model is wrong on most of these images, this is expected; `max_disagreement=1` turns this "
        "check off.",
    ),
    "gap": (
        "{share:.0%} of the images are accepted, {frozen_share:.0%} by the frozen model",
        "If nearly all images are known, or nearly all are unknown, this is expected; `max_gap=1` turns this check "
        "off.",
    ),
    "estimate": (
        "the estimated accuracy is {estimate:.0%}",
        "It is estimated from the disagreement with the frozen model. If the frozen model is wrong on most of these "
        "images, this is expected; `min_estimate=0` turns this check off.",
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
    """Level of the response of the guard."""

    CALM = 0
    WARNED = 1
    SKIPPING = 2
    ROLLED_BACK = 3
    FROZEN = 4


# Kind of the event at each rung, and the first words of its message.
ACTIONS = {
    Rung.WARNED: ("warn", "Possible problem"),
    Rung.SKIPPING: ("skip", "Updates are skipped"),
    Rung.ROLLED_BACK: ("roll_back", "The last good state is restored"),
    Rung.FROZEN: ("freeze", "The adapter is reset, and the frozen model answers"),
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The memory of an adapter after a step."""

    step: int
    tensors: Mapping[str, torch.Tensor]


class Guard:
    """The signals, snapshots and rung of one stream.

    `lda` are the options of the frozen model's LDA, and `initial` has the trained values at the start.

    >>> adapter = ostta.load("embedded", ["cat", "dog", "ship"])
    >>> adapter.step(image).events, adapter.guard.resting
    ((), False)
    """

    def __init__(
        self, options: GuardOptions, classifier: torch.Tensor, lda: LDAOptions, initial: Overlay | None = None
    ) -> None:
        self.options, self._classifier, self._lda, self._initial = options, classifier, lda, initial
        self.signals = Signals(options, len(classifier))
        self.reset()

    def reset(self) -> None:
        """Forget the stream, as `Adapter.reset` does."""
        self.signals.reset()
        self.shadow = Shadow(self._classifier, self._lda)
        self.snapshots: list[Snapshot] = []
        self.rung = Rung.CALM
        # Number of images since the last check, and number of consecutive images without a signal out of its band.
        self._since = self._calm = 0
        self._warned_of_separation = False
        self._freezes = 0
        # Whether all trained values are the initial ones, so that the features are those of the frozen model.
        self.pristine = True

    @property
    def resting(self) -> bool:
        """Whether the frozen model answers."""
        return self.rung == Rung.FROZEN

    @property
    def skipping(self) -> bool:
        """Whether updates are skipped."""
        return self.rung >= Rung.SKIPPING

    # --- one image ----------------------------------------------------------------------------------------------------
    def watch(
        self, turn: Turn, memory: Memory, index: int, encode_frozen: EncodeFrozen, paused: bool
    ) -> tuple[Event, ...]:
        """Record a step that has ended, act on `memory` if a signal is out of its band, and return the events.

        `index` is the predicted class. While the user has paused the adapter, the guard records but does not act.
        """
        if turn.failed:
            self.signals.stepped(memory.steps, failed=True)
        else:
            self._record(turn, memory, index, encode_frozen)
        if paused:
            return ()
        events = self.climb()
        for event in events:
            self._act(event, memory)
        # A failed update leaves the step count as it was, so the snapshot of this step is stored already.
        if not turn.failed and self.rung == Rung.CALM and memory.steps % self.options.snapshot_every == 0:
            self._keep(Snapshot(memory.steps, memory.snapshot()))
        return tuple(events)

    def _record(self, turn: Turn, memory: Memory, index: int, encode_frozen: EncodeFrozen) -> None:
        decision, step, separation = turn.decision, memory.steps, None
        assert decision is not None
        if decision.mu_desired is not None and decision.mu_undesired is not None:
            separation = decision.mu_desired - decision.mu_undesired
        self.signals.stepped(step, failed=False, separation=separation)
        overlay, due = memory.trained, step % self.options.check_every == 0
        if overlay is not None and decision.desired:
            self.signals.trained_on(step, index)
        if overlay is not None and self._initial is not None and due and not self.pristine:
            self.signals.drifted(step, distance(overlay, self._initial))
        every, features = self.pristine or memory.method.overlay(memory.state) is None, turn.look.features
        if every or due:
            # The frozen model needs a separate pass only if the method uses other values.
            if not every:
                with torch.no_grad():
                    features = encode_frozen(turn.look.views)
            frozen = turn.frozen or self.shadow.judge(features, step)
            self.shadow.remember(frozen, step)
            undecided = decision.probability is not None and turn.warming_up
            if not undecided:
                self.signals.checked(step, Check.of(decision, index, frozen.decision, frozen.index), every)
        gradient = turn.proposal.gradient
        if isinstance(turn.outcome, StepResult) and overlay is turn.outcome.overlay and gradient is not None:
            self.pristine = False
            self.signals.moved(step, distance(turn.outcome.overlay, gradient.overlay))

    def _act(self, event: Event, memory: Memory) -> None:
        if event.kind == "roll_back":
            self.snapshots = self._snapshots_before(event.evidence)
            self._restore(self.snapshots.pop(), memory)
        elif event.kind == "freeze":
            memory.restart()
            self.rung = Rung.FROZEN
            self._freezes += 1
            self._since = self._calm = 0
            self.returned(to_start=True)

    def _keep(self, snapshot: Snapshot) -> None:
        """Store a snapshot. If there are too many, the gaps between the older ones grow.

        At least one snapshot stays from before all images that the signals cover, so that a rollback can reach it.
        """
        self.snapshots.append(snapshot)
        steps = [kept.step for kept in self.snapshots]
        if len(steps) <= self.options.snapshots:
            return
        if self.options.snapshots < 3 or steps[1] < self.signals.first_step():
            del self.snapshots[0]
        else:
            gaps = [later - earlier for earlier, later in zip(steps, steps[2:], strict=False)]
            del self.snapshots[1 + gaps.index(min(gaps))]

    def _snapshots_before(self, signals: Iterable[str]) -> list[Snapshot]:
        """Return the snapshots from before the images that `signals` cover."""
        first = self.signals.first_step(signals)
        return [snapshot for snapshot in self.snapshots if snapshot.step < first]

    def _restore(self, snapshot: Snapshot, memory: Memory) -> None:
        memory.load(dict(snapshot.tensors))
        self.returned(to_start=False)

    def roll_back(self, memory: Memory) -> Event:
        """Restore the newest snapshot on request of the user; the next call restores the one before it."""
        if not self.snapshots:
            raise Error(
                f"There is no snapshot to restore yet: the guard stores one every {self.options.snapshot_every} images "
                "while no warning is active.",
                code="snapshot-missing",
            )
        snapshot = self.snapshots.pop()
        self._restore(snapshot, memory)
        return Event("roll_back", f"Rolled back by hand, to the state after step {snapshot.step}.")

    def climb(self) -> list[Event]:
        """Count an image; return the events of the check that is due after it."""
        self._since += 1
        if self._since < self.options.patience:
            return []
        values = self.signals.values()
        out = self.signals.out(values)
        events = self._warn_of_separation(values)
        # A restored state counts as calm only after it has been compared with the frozen model.
        unknown = self.rung >= Rung.ROLLED_BACK and "disagreement" not in values
        self._calm, self._since = 0 if out or unknown else self._calm + self._since, 0
        if out.keys() == {"diversity"} and self.skipping:
            return events
        if out and not self.resting:
            return [*events, self._next_rung(out, values)]
        if not out and self.rung > Rung.CALM and self._calm >= self._until_thaw():
            return [*events, *self._thawed(values)]
        return events

    def returned(self, to_start: bool) -> None:
        """Forget the signals of a state that was undone."""
        self.pristine = to_start
        self.signals.forget()
        if to_start:
            self.snapshots.clear()

    def thaw(self) -> None:
        """Resume on request of the user."""
        self.rung = Rung.CALM
        self._since = self._calm = 0
        self.signals.reset()

    def _until_thaw(self) -> int:
        if self.rung < Rung.FROZEN:
            return 2 * self.options.patience
        times: int = 2 ** min(max(self._freezes - 1, 0), MAX_DOUBLINGS)
        return self.options.cool_down * times

    def _next_rung(self, out: Mapping[str, float], values: Mapping[str, float]) -> Event:
        self.rung = Rung(self.rung + 1)
        if self.rung == Rung.ROLLED_BACK and not self._snapshots_before(out):
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
        """Warn once until the means separate again. This is no reason to act: the images may have become more alike."""
        separation = values.get("separation", 1.0)
        too_close = separation < self.options.min_separation
        if too_close == self._warned_of_separation:
            return []
        self._warned_of_separation = too_close
        sentence = (
            f"The two means of the scores are {separation:.0%} of their usual distance apart. If known and unknown "
            "images look more alike than before, this is expected; `min_separation=0` turns this warning off."
        )
        return [Event("warn", sentence, {"separation": separation})] if too_close else []

    # --- state files --------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the content for a state file, including the snapshots."""
        numbers = [
            int(self.rung), self._since, self._calm, int(self._warned_of_separation), self._freezes,
            int(self.pristine), len(self.snapshots),
        ]  # fmt: skip
        kept = {
            # Copies, because snapshots may share an overlay and a file cannot contain one tensor twice.
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
        """Replace the content; raise an Error if the tensors do not fit. `check_snapshots` checks the snapshots."""
        numbers, signals, shadow, snapshots = split(tensors, "numbers", "signals", "shadow", "snapshots")
        require_names(numbers, ("all",))
        values = stored(numbers, "all", torch.int64, (7,), 0, MOST_STEPS).tolist()
        rung, since, calm, warned, freezes, pristine, count = values
        valid = rung <= Rung.FROZEN and max(warned, pristine) <= 1 and count <= self.options.snapshots
        require_intact(valid, "guard", f"its numbers {shown(values)} are out of range")
        parts = split(snapshots, *map(str, range(count)))
        self.reset()
        for part in parts:
            step = stored_count({"step": part.pop("step", torch.tensor(-1))}, "step")
            self.snapshots.append(Snapshot(step, part))
        self.signals.load(signals)
        self.shadow.load(shadow)
        self.rung, self._since, self._calm = Rung(rung), since, calm
        self._warned_of_separation, self._freezes, self.pristine = bool(warned), freezes, bool(pristine)

    def check_snapshots(self, memory: Memory) -> None:
        """Load every snapshot once; raise an Error if one cannot be restored."""
        for snapshot in self.snapshots:
            memory.load(dict(snapshot.tensors))
