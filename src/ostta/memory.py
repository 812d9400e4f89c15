"""Memory of an adapter, and the results of one step, which it stores.

State files, the snapshots of the guard and resets use `tensors`, `load` and `reset` of `Memory`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from .core.banks import ScoreBank, named
from .core.checks import require_names, split, stored_count
from .core.levels import Levels
from .core.optimisers import DiscardedStep, ProposedStep, StepResult
from .core.overlay import Overlay
from .core.types import Decision, Look, Scored
from .identifiers import Identifier
from .methods.base import HoldsTrained, Method, Proposal
from .scores import Score

Tensors = dict[str, torch.Tensor]
UNSCORED = Scored(math.nan)
NO_UPDATE = Proposal(reason="predict never adapts")


@dataclass(frozen=True, slots=True, eq=False)
class FrozenJudgement:
    """The score, the decision and the logits of the frozen model for one image."""

    scored: Scored
    decision: Decision
    logits: torch.Tensor

    @property
    def index(self) -> int:
        return int(self.logits.argmax())


@dataclass(slots=True, eq=False)
class Turn:
    """Results of the stages for one image, and the times at the end of the first two.

    unseen:          why nothing can be decided. In this case `decision` is None and the remaining stages do nothing.
    frozen:          the decision of the frozen model, while the guard uses its answers.
    features_after:  features of the image under the values after its gradient step, if the answer needs them.
    """

    look: Look[Any]
    began: float
    encoded: float = 0.0
    decided: float = 0.0
    scored: Scored = UNSCORED
    decision: Decision | None = None
    unseen: str | None = None
    warming_up: bool = False
    frozen: FrozenJudgement | None = None
    proposal: Proposal = NO_UPDATE
    outcome: StepResult | DiscardedStep | None = None
    features_after: torch.Tensor | None = None

    @property
    def failed(self) -> bool:
        """Whether the gradient step was discarded."""
        return isinstance(self.outcome, DiscardedStep)

    @property
    def adapted(self) -> bool:
        """Whether the image updated the method."""
        return isinstance(self.outcome, StepResult) or (self.proposal.adapted and not self.failed)


class Memory:
    """The states of method, score, identifier and levels of one adapter, and its counters.

    steps:     number of processed images. The views of an image depend on this number.
    updates:   number of updates since the trained values were last reset; counted only if `reset_every` is set.
    previous:  the trained values before the last gradient step, until an image has been seen through the new values.
    """

    def __init__(
        self, method: Method, score: Score, identifier: Identifier, levels: Levels | None, reset_every: int = 0
    ) -> None:
        self.method, self.score, self.identifier, self.levels = method, score, identifier, levels
        self._reset_every = reset_every
        self.state: Any = method.start()
        self.steps = self.updates = 0
        self.previous: StepResult | None = None

    # --- one image ----------------------------------------------------------------------------------------------------
    @property
    def warming_up(self) -> bool:
        """Whether too few images have been seen for reliable decisions."""
        declared = getattr(self.identifier, "warming_up", None)
        if declared is None:
            # A plug-in may have no `memories`.
            banks: Iterable[object] = getattr(self.identifier, "memories", dict)().values()
            declared = any(bank.young for bank in banks if isinstance(bank, ScoreBank))
        return bool(declared or getattr(self.score, "warming_up", False))

    @property
    def trained(self) -> Overlay | None:
        """The trained values, including those of the text tower; None if the method trains nothing."""
        return self.state.overlay if isinstance(self.state, HoldsTrained) else self.method.overlay(self.state)

    def remember(self, turn: Turn, *, learns: bool, paused: bool) -> None:
        """Store what was learned from an image, after its step succeeded, and count the step.

        `learns` is False while updates are paused or skipped. `paused` means paused by the user; then only the
        identifier is updated.
        """
        look, scored, decision = turn.look, turn.scored, turn.decision
        assert decision is not None
        if learns:
            self.method.commit(
                self.state, look, decision, turn.outcome if isinstance(turn.outcome, StepResult) else None
            )
        if not paused:
            self.score.remember(look, scored, decision)
        self.identifier.remember(scored.value, scored.evidence)
        if self.levels is not None and not paused:
            self.levels.remember(look.logits, decision.desired)
        self.steps += 1

    def remember_scored(self, look: Look[Any], scored: Scored) -> None:
        """Store what was learned from an image of a set that the score was fitted to, and count the step."""
        decision = self.identifier.peek(scored.value, scored.evidence)
        self.method.commit(self.state, look, decision, None)
        self.identifier.remember(scored.value, scored.evidence)
        if self.levels is not None:
            self.levels.remember(look.logits, decision.desired)
        self.steps += 1

    def expect_trial(self, gradient: ProposedStep | None) -> None:
        """Keep the values before `gradient`, which no image has been seen through yet; None clears them."""
        self.previous = None
        if gradient is not None and isinstance(self.state, HoldsTrained):
            self.previous = StepResult(gradient.overlay, gradient.optimiser)

    @contextmanager
    def without_last_step(self) -> Iterator[None]:
        """Use the values before the last gradient step within the block."""
        last = StepResult(self.state.overlay, self.state.optimiser)
        self.state.keep(self.previous)
        try:
            yield
        finally:
            self.state.keep(last)

    def undo_last_step(self) -> None:
        """Restore the values before the last gradient step."""
        self.state.keep(self.previous)
        self.previous = None

    def count_update(self) -> bool:
        """Count an update; return whether the option `reset_every` caused a reset of the trained values."""
        if not self._reset_every:
            return False
        self.updates += 1
        if self.updates < self._reset_every:
            return False
        self._restart(self.state.restarted(self.method.start()))
        return True

    # --- the whole ----------------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Clear the whole memory."""
        self.restart()
        self.steps = 0

    def restart(self) -> None:
        """Clear everything except the number of steps."""
        self._restart(self.method.start())

    def _restart(self, state: Any) -> None:
        # The memories of score and identifier come from the trained model and are not comparable with values of the
        # initial model.
        self.state, self.previous, self.updates = state, None, 0
        self.score.reset()
        self.identifier.reset()
        if self.levels is not None:
            self.levels.reset()

    def tensors(self) -> Tensors:
        """Return everything except the number of steps, which state files store separately and snapshots ignore."""
        # Levels and updates are stored only if they are in use.
        return named(
            method=self.state.tensors(),
            score=self.score.tensors(),
            identifier=self.identifier.tensors(),
            levels={} if self.levels is None else self.levels.tensors(),
            adapter={"updates": torch.tensor(self.updates)} if self._reset_every else {},
        )

    def snapshot(self) -> Tensors:
        """Return `tensors` as copies in main memory, except trained values, which never change and are shared."""
        shared: set[int] = set()
        if isinstance(self.state, HoldsTrained):
            trained = (*self.state.overlay.parameters(), *self.state.optimiser.first, *self.state.optimiser.second)
            shared = {tensor.data_ptr() for tensor in trained}
        return {
            name: tensor.detach() if tensor.data_ptr() in shared else tensor.detach().to("cpu", copy=True)
            for name, tensor in self.tensors().items()
        }

    def load(self, tensors: Tensors) -> None:
        """Replace everything by the result of an earlier `tensors` or `snapshot`; raise an Error if it does not fit."""
        method, score, identifier, levels, adapter = split(
            tensors, "method", "score", "identifier", "levels", "adapter"
        )
        every = self._reset_every
        require_names(adapter, ("updates",) if every else ())
        self.updates = stored_count(adapter, "updates", every - 1) if every else 0
        if self.levels is not None:
            self.levels.load(levels)
        else:
            require_names(levels, ())
        self.state, self.previous = self.method.start(), None
        self.state.load(method)
        self.score.load(score)
        self.identifier.load(identifier)
