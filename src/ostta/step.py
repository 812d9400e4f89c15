"""The five stages of a step: look, decide, propose, train, conclude. Adapters and stream pools run the same stages.

look      image tower and method      features and logits of the image
decide    score and identifier        known or unknown; changes nothing
propose   method                      the gradient step for the image; changes nothing
train     optimiser                   the values after that step; changes nothing
conclude  memory and guard            store everything that was learned, or nothing, and assemble the prediction
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch

from .acceptance import Acceptance
from .backbones.protocol import Backbone
from .config.resolve import AdapterOptions
from .core.banks import named
from .core.checks import require_intact, stored_count
from .core.optimisers import DiscardedStep, StepResult, gradient_step
from .core.overlay import Overlay, answering, encode, learning
from .core.types import Error, Event, InUseError, Look, Prediction, Timing, ViewSource
from .data.images import ImageFeatures, ImageSource, read_image
from .data.views import FeaturesOnly, Views
from .guard import Guard
from .memory import Memory, Turn
from .methods.base import Proposal

NOT_FINITE = "the features of this image are not finite"
NO_DIRECTION = "the features of this image have length zero or overflow"
SPOILED = DiscardedStep("the step would make the features of images not finite")
PAUSED = Proposal(reason="the adapter is frozen")
SKIPPED = Proposal(reason="the guard leaves out updates for now")
# Name of the tensor in a state file that says whether the user paused the adapter.
PAUSED_TENSOR = "adapter/frozen"


class Pipeline:
    """The five stages of one adapter. `paused` is whether the user paused the adapter."""

    def __init__(
        self,
        backbone: Backbone,
        classes: Sequence[str],
        classifier: torch.Tensor,
        memory: Memory,
        guard: Guard | None,
        options: AdapterOptions,
        seed: int,
    ) -> None:
        self.backbone, self.classes, self.classifier = backbone, classes, classifier
        self.memory, self.guard, self.options, self.seed = memory, guard, options, seed
        self.method = memory.method
        self.acceptance = Acceptance(options.accept, classes)
        self.paused = False
        self._lock = threading.Lock()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Raise an Error for any concurrent caller during the block."""
        if not self._lock.acquire(blocking=False):
            raise InUseError(
                "This adapter is in use by another call: give each thread an adapter of its own on the same backbone, "
                "or use `ostta.StreamPool`."
            )
        try:
            yield
        finally:
            self._lock.release()

    @property
    def features_suffice(self) -> bool:
        """Whether a step needs only the features of an image under the frozen tower."""
        return self.method.views == 1 and self.method.overlay(self.memory.state) is None

    def clock(self) -> float:
        """Return the time in seconds after the device has finished its work."""
        device = self.classifier.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()
        return perf_counter()

    @property
    def frozen(self) -> bool:
        """Whether learning is paused, by the user or by the guard."""
        return self.paused or (self.guard is not None and self.guard.resting)

    # --- all stages ---------------------------------------------------------------------------------------------------
    def step(self, views: ViewSource, seconds: float = 0.0) -> Prediction:
        """Decide, adapt and answer. `seconds` is the time already spent on the image."""
        with self.in_use(), learning():
            turn = self.look(views, seconds)
            self.decide(turn)
            self.propose(turn)
            self.train(turn)
            return self.conclude(turn)

    def step_all(self, images: Sequence[FeaturesOnly | str]) -> list[Prediction]:
        """Fit to a whole set of images at once, and answer each. A string is the reason why an image is missing.

        The order of the images does not matter: score, method, identifier and levels see them in an order that depends
        on their features, and every answer is computed after all images were seen. The guard does not watch.
        """
        reasons = [image if isinstance(image, str) else unseen_reason(image.features) for image in images]
        pairs = zip(images, reasons, strict=True)
        seen = [image for image, reason in pairs if reason is None and not isinstance(image, str)]
        memory, answers = self.memory, []
        with self.in_use(), learning():
            if seen:
                rows = torch.stack([image.features for image in seen]).float().cpu().numpy()
                order = np.random.default_rng(0).permutation(np.lexsort(rows.T))
                scores = memory.score.fit_set(rows[order])
                for place, scored in zip(order, scores, strict=True):
                    memory.remember_scored(self.look_now(seen[place]), scored)
                for number, place in enumerate(np.argsort(order)):
                    turn = Turn(self.look_now(seen[number]), self.clock(), scored=scores[place])
                    turn.encoded = turn.decided = turn.began
                    turn.decision = memory.identifier.peek(turn.scored.value, turn.scored.evidence)
                    self.propose(turn)
                    answers.append(self.prediction(turn, self._without_levels(turn.look.logits)))
        remaining = iter(answers)
        return [next(remaining) if reason is None else unseen_prediction(reason) for reason in reasons]

    def predict(self, views: ViewSource) -> Prediction:
        """Answer from the current state. Changes nothing."""
        with self.in_use(), answering():
            turn = self.look(views, keep=False)
            self.decide(turn)
            if turn.decision is None:
                return unseen_prediction(turn.unseen)
            return self.prediction(turn, self._without_levels(turn.look.logits))

    # --- look ---------------------------------------------------------------------------------------------------------
    def views(self, image: ImageSource | torch.Tensor) -> Views:
        """Return the views of the next image. A tensor contains preprocessed views [V, 3, H, W]."""
        preprocessing, device = self.backbone.preprocessing, self.classifier.device
        if not isinstance(image, torch.Tensor):
            picture = read_image(image, self.options.max_megapixels)
            return Views.of_image(picture, preprocessing, self.seed, self.memory.steps, device)
        views = Views.of_tensor(image, preprocessing, device)
        views.require(self.method.views)
        return views

    def read(self, image: ImageSource) -> ViewSource:
        """Return the input of a step: the views of an image, or only its features if it was encoded before."""
        if isinstance(image, ImageFeatures):
            return self.features_only(torch.from_numpy(image.values))
        return self.views(image)

    def features_only(self, features: torch.Tensor | Sequence[float]) -> FeaturesOnly:
        """Return the features [D] of an image instead of its views; raise an Error if the method needs the image."""
        if not self.features_suffice:
            raise Error(
                "This method needs the image, not only its features: use `step`, or a method that trains nothing in "
                "the image tower, such as zero_shot, tda or dpe.",
                code="image-needed",
            )
        return FeaturesOnly.of(features, self.classifier)

    def look(self, views: ViewSource, seconds: float = 0.0, *, keep: bool = True) -> Turn:
        """Encode the image and compute its logits.

        `seconds` is the time already spent on the image. `keep` is False if only a prediction is made.
        """
        began = self.clock() - seconds
        return Turn(self.rescue(self.look_now(views), keep), began)

    def look_now(self, views: ViewSource) -> Look[Any]:
        """Return the look of the method with its current values."""
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
        """Return `look`, or a look without the last gradient step if that step makes the features not finite.

        With `keep`, the step is undone.
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
                self.guard.signals.stepped(self.memory.steps, failed=True)
            warnings.warn(
                f"The update of step {self.memory.steps} made the features of images not finite and was undone: "
                "use a lower learning rate.",
                stacklevel=2,
            )
        return earlier

    def try_last_step(self) -> None:
        """Check with a grey image that the last gradient step gives finite features, if no image has done so yet."""
        if self.memory.previous is not None:
            self.look(self._grey())

    def _grey(self) -> Views:
        size = self.backbone.preprocessing.image_size
        return Views.of_tensor(torch.zeros(1, 3, size, size), device=self.classifier.device)

    # --- decide -------------------------------------------------------------------------------------------------------
    def decide(self, turn: Turn) -> None:
        """Score the image and decide whether it is known. Changes only the turn."""
        memory, features = self.memory, turn.look.features
        turn.unseen = unseen_reason(features)
        turn.encoded = self.clock()
        if turn.unseen is None:
            turn.scored = memory.score.value(turn.look)
            turn.unseen = None if math.isfinite(turn.scored.value) else NOT_FINITE
        if turn.unseen is None:
            turn.decision = memory.identifier.peek(turn.scored.value, turn.scored.evidence)
            # While the guard rests, the method has its initial values, so its features are those of the frozen model.
            if self.guard is not None and self.guard.resting:
                turn.frozen = self.guard.shadow.judge(features, memory.steps + 1)
        turn.warming_up = memory.warming_up
        turn.decided = self.clock()

    # --- propose and train --------------------------------------------------------------------------------------------
    def propose(self, turn: Turn) -> None:
        """Get the update for this image from the method. Changes only the turn."""
        if turn.decision is None:
            return
        if self.frozen:
            turn.proposal = PAUSED
        elif self.guard is not None and self.guard.skipping:
            turn.proposal = SKIPPED
        else:
            turn.proposal = self.method.propose(self.memory.state, turn.look, turn.decision)

    def train(self, turn: Turn, look_again: bool = True) -> None:
        """Compute the proposed gradient step, and the features of the image after it. Changes only the turn.

        A pool passes `look_again=False`, because it encodes the images of several streams together.
        """
        if turn.decision is None or turn.proposal.gradient is None:
            return
        turn.outcome = gradient_step(turn.proposal.gradient, turn.look)
        if look_again and self.looks_again(turn) and isinstance(turn.outcome, StepResult):
            with torch.no_grad(), self._half_precision(True):
                turn.features_after = self.encode(turn.look.views, turn.outcome.overlay)

    def looks_again(self, turn: Turn) -> bool:
        """Return whether the answer needs the features of the image under the values after its step."""
        gradient = turn.proposal.gradient
        return (
            isinstance(turn.outcome, StepResult)
            and gradient is not None
            and gradient.looks_again
            and self._answers_after(turn)
        )

    # --- conclude -----------------------------------------------------------------------------------------------------
    def conclude(self, turn: Turn) -> Prediction:
        """Store what was learned from the image, store its score and count the step. A failure changes nothing."""
        if turn.decision is None:
            return unseen_prediction(turn.unseen)
        memory, logits = self.memory, self._logits_after(turn)
        answered = self._without_levels(turn.look.logits if logits is None else logits)
        events: tuple[Event, ...] = ()
        if not turn.failed:
            learns = turn.proposal is not PAUSED and turn.proposal is not SKIPPED
            memory.remember(turn, learns=learns, paused=self.paused)
            # The new values may be unusable, which is known only after an image has been seen through them.
            memory.expect_trial(turn.proposal.gradient if logits is None and turn.outcome is not None else None)
            if turn.adapted:
                events = self._count_update(turn)
        if self.guard is not None and not events:  # after a reset the guard has nothing to check yet
            index = int(answered.argmax())
            events = self.guard.watch(turn, memory, index, lambda views: self.encode(views, None), self.paused)
        return self.prediction(turn, answered, events)

    def prediction(self, turn: Turn, logits: torch.Tensor, events: tuple[Event, ...] = ()) -> Prediction:
        """Assemble the prediction of a decided image. The class is predicted from `logits`."""
        look, scored, decision = turn.look, turn.scored, turn.decision
        if turn.frozen is not None:
            scored, decision, logits = turn.frozen.scored, turn.frozen.decision, turn.frozen.logits
        assert decision is not None
        proposal, outcome = turn.proposal, turn.outcome
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
            adapted=turn.adapted,
            loss=outcome.loss if isinstance(outcome, StepResult) else proposal.loss,
            reason=outcome.reason if isinstance(outcome, DiscardedStep) else proposal.reason,
            ms=Timing(*(1e3 * span for span in spans)),
            best=self.classes[index],
            class_scores=self._by_class(logits) if self.options.class_scores else None,
            pseudo_label=pseudo_label,
            diagnostics={} if turn.failed else proposal.diagnostics,
            features=tuple(look.features.cpu().tolist()) if self.options.features else None,
            evidence=scored.evidence,
            events=events,
            warming_up=turn.warming_up,
            probability=probability,
            undecided=probability is not None and turn.warming_up,
            explanation=None if probability is None or explain is None else explain(scored, self.classes[index]),
            class_probabilities=self._class_probabilities(probability, logits, look.scale),
            most_like=scored.most_like,
        )

    # --- the whole state ----------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the content of a state file: the memory, the guard, and whether the user paused the adapter."""
        paused = {PAUSED_TENSOR: torch.tensor(1)} if self.paused else {}
        guard = {} if self.guard is None else self.guard.tensors()
        return self.memory.tensors() | paused | named(guard=guard)

    def load(self, tensors: dict[str, torch.Tensor], steps: int) -> None:
        """Replace everything by the result of an earlier `tensors` after `steps` images.

        Raise an Error if the tensors do not fit.
        """
        memory = {name: tensor for name, tensor in tensors.items() if not name.startswith("guard/")}
        guard = {name.removeprefix("guard/"): tensor for name, tensor in tensors.items() if name not in memory}
        if self.guard is not None:
            self.guard.load(guard)
            self.guard.check_snapshots(self.memory)
        elif guard:
            raise Error("The state has a guard, but its options do not.", code="state-mismatch")
        self.paused = PAUSED_TENSOR in memory and bool(stored_count(memory, PAUSED_TENSOR, 1))
        memory.pop(PAUSED_TENSOR, None)
        self.memory.load(memory)
        self.memory.steps = steps
        if self.memory.trained is not None:
            finite = unseen_reason(self.look_now(self._grey()).features) is None
            require_intact(finite, "trained values", "the features of an image are not finite")

    def reset(self) -> None:
        """Restore the initial state: no adaptation, empty banks, step 0."""
        self.memory.reset()
        self.paused = False
        if self.guard is not None:
            self.guard.reset()

    def pause(self) -> Event:
        """Stop learning until `thaw`."""
        self.paused = True
        return Event("freeze", "Frozen by hand.")

    def thaw(self) -> Event:
        """Resume learning from the current state, also after a freeze by the guard."""
        self.paused = False
        if self.guard is not None:
            self.guard.thaw()
        return Event("thaw", "Thawed by hand.")

    def roll_back(self) -> Event:
        """Restore the newest snapshot of the guard."""
        if self.guard is None:
            raise Error("There is no earlier state: only `guard=True` keeps snapshots.", code="snapshot-missing")
        return self.guard.roll_back(self.memory)

    # --- helpers ------------------------------------------------------------------------------------------------------
    def _answers_after(self, turn: Turn) -> bool:
        return turn.decision is not None and turn.decision.desired and self.options.answer_from == "after"

    def _logits_after(self, turn: Turn) -> torch.Tensor | None:
        """Return the logits after the gradient step; None if the answer uses those before it.

        If the step makes the logits or features invalid, the outcome of the turn becomes `SPOILED`.
        """
        if not isinstance(turn.outcome, StepResult) or not self._answers_after(turn):
            return None
        after = turn.look.features if turn.features_after is None else turn.features_after
        with torch.no_grad(), self._half_precision(True):
            logits = self.method.answer(self.memory.state, turn.look, turn.outcome, after)
        finite = logits is None or math.isfinite(float(logits.sum(dtype=torch.float32)))
        if finite and (turn.features_after is None or unseen_reason(turn.features_after) is None):
            return logits
        turn.outcome = SPOILED
        return None

    def _count_update(self, turn: Turn) -> tuple[Event, ...]:
        """Count the update of this image; return the event of a reset if `reset_every` requires one now."""
        if not self.memory.count_update():
            return ()
        if self.guard is not None:
            self.guard.returned(to_start=True)
        every = self.options.reset_every
        evidence = {"reset": float(every)}
        turn.proposal = replace(turn.proposal, diagnostics={**turn.proposal.diagnostics, **evidence})
        sentence = f"The trained values were reset after {every} updates, as set by `reset_every`."
        return (Event("reset", sentence, evidence),)

    def _without_levels(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits that the class is predicted from."""
        return logits if self.memory.levels is None else self.memory.levels.without(logits)

    def _half_precision(self, enabled: bool) -> AbstractContextManager[object]:
        """Use half precision where the published code uses it on a GPU, with `precision=mixed` (D32)."""
        if enabled and self.options.precision == "mixed":
            return torch.autocast(self.classifier.device.type, dtype=torch.float16)
        return nullcontext()

    def _by_class(self, values: torch.Tensor) -> dict[str, float]:
        return dict(zip(self.classes, values.cpu().tolist(), strict=True))

    def _class_probabilities(
        self, probability: float | None, logits: torch.Tensor, scale: float
    ) -> dict[str, float] | None:
        """Return P(known), divided among the classes by the softmax of `logits`, which contain the factor `scale`."""
        if probability is None or not self.options.class_probabilities:
            return None
        shares = torch.softmax(self.backbone.logit_scale / scale * logits.float(), dim=-1)
        return {name: probability * share for name, share in self._by_class(shares).items()}


def unseen_reason(features: torch.Tensor) -> str | None:
    """Return why nothing can be decided from unit features; None if a decision is possible."""
    length = float(torch.linalg.vector_norm(features.detach()))
    if not math.isfinite(length):
        return NOT_FINITE
    return None if length**2 > 0.5 else NO_DIRECTION


def unseen_prediction(reason: str | None) -> Prediction:
    """Return the prediction for an image that could not be processed."""
    return Prediction(None, -1, False, math.nan, None, None, None, None, False, None, reason)
