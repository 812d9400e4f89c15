"""The way of one image: look, decide, propose, train, conclude. Adapter and stream pool run the same five stages.

look      image tower and method      features and logits of the image
decide    score and identifier        known or unknown; changes nothing
propose   method                      the gradient step that the image asks for; changes nothing
train     optimiser                   the values after that step; changes nothing
conclude  memory and guard            store what the image has taught, all or nothing, and assemble the prediction
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch

from .acceptance import Acceptance
from .backbones.protocol import Backbone
from .config.resolve import AdapterOptions
from .core.banks import named
from .core.checks import split, stored_count
from .core.devices import synchronise
from .core.overlay import Overlay, encode
from .core.types import Decision, Error, Event, Look, Prediction, Scored, Timing, ViewSource
from .data.views import FeaturesOnly, Views
from .guard import Guard, Judged
from .memory import Memory
from .methods.base import Proposal, Tuned
from .methods.gradient import Failure, Trained, gradient_step

UNSCORED = Scored(math.nan)
NOT_FINITE = "the features of this image are not finite"
NO_DIRECTION = "the features of this image have length zero or overflow"
SPOILED = Failure("the step would make the features of images not finite")
PAUSED = Proposal(reason="the adapter is frozen")
SKIPPED = Proposal(reason="the guard leaves out updates for now")
NO_UPDATE = Proposal(reason="predict never adapts")


@dataclass(slots=True, eq=False)
class Turn:
    """One image on its way through a step: what each stage found, and the clock at the end of the first two.

    unseen:          why nothing can be decided; `decision` is None then, and the later stages do nothing.
    frozen:          the answer of the frozen model, while the guard lets it answer.
    features_after:  features of the image under the values that its gradient step led to, if the answer needs them.
    """

    look: Look[Any]
    began: float
    encoded: float = 0.0
    decided: float = 0.0
    scored: Scored = UNSCORED
    decision: Decision | None = None
    unseen: str | None = None
    warming_up: bool = False
    frozen: Judged | None = None
    proposal: Proposal = NO_UPDATE
    outcome: Trained | Failure | None = None
    features_after: torch.Tensor | None = None


class Pipeline:
    """The five stages of one adapter, and `paused`, whether it was paused by hand."""

    def __init__(
        self,
        backbone: Backbone,
        classes: Sequence[str],
        classifier: torch.Tensor,
        memory: Memory,
        guard: Guard | None,
        options: AdapterOptions,
    ) -> None:
        self.backbone, self.classes, self.classifier = backbone, classes, classifier
        self.memory, self.guard, self.options = memory, guard, options
        self.method = memory.method
        self.acceptance = Acceptance(options.accept, classes)
        self.paused = False

    def clock(self) -> float:
        """Return the time in seconds after the device has finished its work."""
        synchronise(self.classifier.device)
        return perf_counter()

    # --- look ---------------------------------------------------------------------------------------------------------
    def look(self, views: ViewSource, seconds: float = 0.0, *, keep: bool = True) -> Turn:
        """Encode the image and compute its logits. `seconds` were spent on it before; `keep` is False for a prediction only."""
        began = self.clock() - seconds
        return Turn(self.rescue(self.look_now(views), keep), began)

    def look_now(self, views: ViewSource) -> Look[Any]:
        """Return the look of the method through its present values."""
        graph = torch.is_grad_enabled() and self.method.looks_with_graph
        with torch.set_grad_enabled(graph), self._half_precision(getattr(self.method, "looks_in_half", False)):
            features = self.encode(views, self.method.overlay(self.memory.state))
            return self.method.look(self.memory.state, features, views)

    def encode(self, views: ViewSource, overlay: Overlay | None) -> torch.Tensor:
        """Return the unit features [D] of the canonical view."""
        if isinstance(views, FeaturesOnly):
            return views.features
        if overlay is None and isinstance(views, Views) and views.features is not None:
            return views.features
        return encode(self.backbone.vision, views.canonical, overlay)[0]

    def rescue(self, look: Look[Any], keep: bool = True) -> Look[Any]:
        """Return `look`, or a look without the last gradient step if only that step makes the features not finite.

        With `keep` the step is undone.
        """
        if self.memory.previous is None or unseen_reason(look.features) is None:
            return look
        with self.memory.without_last_step():
            earlier = self.look_now(look.views)
        if unseen_reason(earlier.features) is not None:
            return look
        if keep:
            self.memory.undo_last_step()
            if self.guard is not None:
                self.guard.signals.failed()
            warnings.warn(
                f"The update of step {self.memory.steps} made the features of images not finite and was taken back: "
                "its learning rate is too high.",
                stacklevel=2,
            )
        return earlier

    def try_last_step(self) -> None:
        """Check on a grey image that images can be seen through the last gradient step, if none was yet."""
        if self.memory.previous is not None:
            size = self.backbone.preprocessing.image_size
            self.look(Views.of_tensor(torch.zeros(1, 3, size, size), device=self.classifier.device))

    # --- decide -------------------------------------------------------------------------------------------------------
    def decide(self, turn: Turn) -> None:
        """Score the image and decide whether it is known. Changes nothing but the turn."""
        memory, features = self.memory, turn.look.features
        turn.unseen = unseen_reason(features)
        turn.encoded = self.clock()
        if turn.unseen is None:
            turn.scored = memory.score.value(turn.look)
            turn.unseen = None if math.isfinite(turn.scored.value) else NOT_FINITE
        if turn.unseen is None:
            turn.decision = memory.identifier.peek(turn.scored.value, turn.scored.evidence)
            # While the guard rests, the method is at the start: its features are those of the frozen model.
            if self.guard is not None and self.guard.resting:
                turn.frozen = self.guard.shadow.judge(features, memory.steps + 1)
        turn.warming_up = memory.warming_up
        turn.decided = self.clock()

    # --- propose and train --------------------------------------------------------------------------------------------
    def propose(self, turn: Turn) -> None:
        """Ask the method for the update of this image. Changes nothing but the turn."""
        if turn.decision is None:
            return
        if self.paused or (self.guard is not None and self.guard.resting):
            turn.proposal = PAUSED
        elif self.guard is not None and self.guard.skipping:
            turn.proposal = SKIPPED
        else:
            turn.proposal = self.method.propose(self.memory.state, turn.look, turn.decision)

    def train(self, turn: Turn, look_again: bool = True) -> None:
        """Compute the proposed gradient step, and the features of the image after it. Changes nothing but the turn.

        A pool passes `look_again=False`, because it encodes the images of several streams together.
        """
        if turn.decision is None or turn.proposal.gradient is None:
            return
        turn.outcome = gradient_step(turn.proposal.gradient, turn.look)
        if look_again and self.looks_again(turn) and isinstance(turn.outcome, Trained):
            with torch.no_grad(), self._half_precision(True):
                turn.features_after = self.encode(turn.look.views, turn.outcome.overlay)

    def looks_again(self, turn: Turn) -> bool:
        """Return whether the answer needs the features of the image under the values after its step."""
        gradient = turn.proposal.gradient
        return (
            isinstance(turn.outcome, Trained)
            and gradient is not None
            and gradient.looks_again
            and self._answers_after(turn)
        )

    # --- conclude -----------------------------------------------------------------------------------------------------
    def conclude(self, turn: Turn) -> Prediction:
        """Store what the image has taught, remember its score and count the step: all of it, or nothing."""
        if turn.decision is None:
            return unseen_prediction(turn.unseen)
        memory, logits = self.memory, self._logits_after(turn)
        answered = self._without_levels(turn.look.logits if logits is None else logits)
        events: tuple[Event, ...] = ()
        if not isinstance(turn.outcome, Failure):
            learns = turn.proposal is not PAUSED and turn.proposal is not SKIPPED
            memory.remember(turn.look, turn.scored, turn.decision, turn.outcome, learns=learns, paused=self.paused)
            # Until an image was seen through the new values, it is unknown whether one can be.
            memory.expect_trial(turn.proposal.gradient if logits is None and turn.outcome is not None else None)
            if isinstance(turn.outcome, Trained) or turn.proposal.adapted:
                events = self._count_update(turn)
        if self.guard is not None and not events:  # after a reset there is nothing to watch yet
            index = int(answered.argmax())
            events = self.guard.watch(turn, memory, index, lambda views: self.encode(views, None), self.paused)
        return self.prediction(turn, answered, events)

    def predict(self, turn: Turn) -> Prediction:
        """Assemble the prediction of a turn that ends after its decision. Changes nothing."""
        if turn.decision is None:
            return unseen_prediction(turn.unseen)
        return self.prediction(turn, self._without_levels(turn.look.logits))

    def prediction(self, turn: Turn, logits: torch.Tensor, events: tuple[Event, ...] = ()) -> Prediction:
        """Assemble the prediction of a decided image, whose class is named from `logits`."""
        look, scored, decision = turn.look, turn.scored, turn.decision
        if turn.frozen is not None:
            scored, decision, logits = turn.frozen.scored, turn.frozen.decision, turn.frozen.logits
        assert decision is not None
        proposal, outcome, failed = turn.proposal, turn.outcome, isinstance(turn.outcome, Failure)
        pseudo_label = int(look.logits.argmax())
        index = pseudo_label if logits is look.logits else int(logits.argmax())
        spans = (turn.encoded - turn.began, turn.decided - turn.encoded, self.clock() - turn.decided)
        probability, explain = decision.probability, getattr(self.memory.score, "explain", None)
        known = decision.desired if probability is None else self.acceptance.accepts(probability, index)
        scored = replace(scored, most_like=None) if known else scored
        return Prediction(
            label=self.classes[index] if known else None,
            index=index,
            known=known,
            score=scored.value,
            threshold=decision.threshold if probability is None else self.acceptance.log_odds(index),
            mu_desired=decision.mu_desired,
            mu_undesired=decision.mu_undesired,
            verdict=decision.verdict,
            adapted=isinstance(outcome, Trained) or (proposal.adapted and not failed),
            loss=outcome.loss if isinstance(outcome, Trained) else proposal.loss,
            reason=outcome.reason if isinstance(outcome, Failure) else proposal.reason,
            ms=Timing(*(1e3 * span for span in spans)),
            best=self.classes[index],
            class_scores=self._by_class(logits) if self.options.class_scores else None,
            pseudo_label=pseudo_label,
            diagnostics={} if failed else proposal.diagnostics,
            features=tuple(look.features.cpu().tolist()) if self.options.features else None,
            evidence=scored.evidence,
            events=events,
            warming_up=turn.warming_up,
            probability=probability,
            undecided=probability is not None and turn.warming_up,
            explanation=None if probability is None or explain is None else explain(scored, self.classes[index]),
            class_probabilities=self._class_probabilities(probability, logits),
            most_like=scored.most_like,
        )

    # --- the state file -----------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what a state file holds: the memory, the guard, and whether the adapter is paused by hand."""
        paused = {"frozen": torch.tensor(1)} if self.paused else {}
        guard = {} if self.guard is None else self.guard.tensors()
        return self.memory.tensors() | named(adapter=paused, guard=guard)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace everything by the result of an earlier `tensors`; raise an Error if it does not fit."""
        memory = {name: tensor for name, tensor in tensors.items() if not name.startswith("guard/")}
        (guard,) = split({name: tensor for name, tensor in tensors.items() if name not in memory}, "guard")
        if self.guard is not None:
            self.guard.load(guard)
            self.guard.check_snapshots(self.memory)
        elif guard:
            raise Error("The state holds a guard, which its options do not ask for.", code="state-mismatch")
        paused = {"frozen": memory.pop("adapter/frozen")} if "adapter/frozen" in memory else {}
        self.paused = bool(paused) and bool(stored_count(paused, "frozen", 1))
        self.memory.load(memory)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _answers_after(self, turn: Turn) -> bool:
        return turn.decision is not None and turn.decision.desired and self.options.answer_from == "after"

    def _logits_after(self, turn: Turn) -> torch.Tensor | None:
        """Return the logits after the gradient step, None if the answer is from before; a step that spoils them fails here."""
        if not isinstance(turn.outcome, Trained) or not self._answers_after(turn):
            return None
        after = turn.look.features if turn.features_after is None else turn.features_after
        with torch.no_grad(), self._half_precision(True):
            logits = self._answer(turn, turn.outcome, after)
        finite = logits is None or math.isfinite(float(logits.sum(dtype=torch.float32)))
        if finite and (turn.features_after is None or unseen_reason(turn.features_after) is None):
            return logits
        turn.outcome = SPOILED
        return None

    def _answer(self, turn: Turn, trained: Trained, features: torch.Tensor) -> torch.Tensor | None:
        """Ask the method for its logits after the step."""
        gradient = turn.proposal.gradient
        if gradient is not None and gradient.answer is not None:
            return gradient.answer(trained.overlay, features)
        if hasattr(self.method, "answer"):
            return self.method.answer(self.memory.state, turn.look, trained, features)
        # A method that inherits neither `Plain` nor `Tuned` need not have `answer`.
        return Tuned.answer(self.method, self.memory.state, turn.look, trained, features)  # type: ignore[arg-type]

    def _count_update(self, turn: Turn) -> tuple[Event, ...]:
        """Count the update of this image; return the event of a reset, if `reset_every` asks for one now."""
        if not self.memory.count_update():
            return ()
        if self.guard is not None:
            self.guard.returned(to_start=True)
        every = self.options.reset_every
        evidence = {"reset": float(every)}
        turn.proposal = replace(turn.proposal, diagnostics={**turn.proposal.diagnostics, **evidence})
        sentence = f"What was trained went back to the start after {every} updates, as `reset_every` asks."
        return (Event("reset", sentence, evidence),)

    def _without_levels(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits that the class is named from."""
        return logits if self.memory.levels is None else self.memory.levels.without(logits)

    def _half_precision(self, here: bool) -> AbstractContextManager[object]:
        """Half precision where the published code uses it on a GPU, with `precision=mixed` (D32)."""
        if here and self.options.precision == "mixed":
            return torch.autocast(self.classifier.device.type, dtype=torch.float16)
        return nullcontext()

    def _by_class(self, values: torch.Tensor) -> dict[str, float]:
        return dict(zip(self.classes, values.cpu().tolist(), strict=True))

    def _class_probabilities(self, probability: float | None, logits: torch.Tensor) -> dict[str, float] | None:
        """Return P(known) divided among the classes by the softmax of the scaled logits."""
        if probability is None or not self.options.class_probabilities:
            return None
        scale = self.backbone.logit_scale if self.method.score_scale == 1 else 1.0
        shares = torch.softmax(scale * logits.float(), dim=-1)
        return {name: probability * share for name, share in self._by_class(shares).items()}


def unseen_reason(features: torch.Tensor) -> str | None:
    """Return why nothing can be decided from unit features; None if it can."""
    length = float(torch.linalg.vector_norm(features.detach()))
    if not math.isfinite(length):
        return NOT_FINITE
    return None if length**2 > 0.5 else NO_DIRECTION


def unseen_prediction(reason: str | None) -> Prediction:
    """Return the prediction for an image that could not be seen."""
    return Prediction(None, -1, False, math.nan, None, None, None, None, False, None, reason)
