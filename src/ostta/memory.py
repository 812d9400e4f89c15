"""Everything an adapter remembers of its stream: the states of method, score, identifier and levels, and the counters.

State files, the snapshots of the guard and resets all go through `tensors`, `load` and `reset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .core.banks import named
from .core.checks import require_names, split, stored_count
from .core.levels import Levels
from .core.overlay import Overlay
from .core.types import Decision, Look, Scored
from .identifiers import Identifier
from .identifiers.base import is_warming_up
from .methods.base import HoldsTrained, Method
from .methods.gradient import Gradient, Trained
from .scores import Score

Tensors = dict[str, torch.Tensor]


class Memory:
    """The states of all parts of one adapter.

    steps:     images that were processed. The views of an image depend on this number.
    updates:   updates since the trained values were last at the start; counted only if `reset_every` is set.
    previous:  the trained values before the last gradient step, until an image was seen through the new ones.
    """

    def __init__(
        self, method: Method, score: Score, identifier: Identifier, levels: Levels | None, reset_every: int = 0
    ) -> None:
        self.method, self.score, self.identifier, self.levels = method, score, identifier, levels
        self._reset_every = reset_every
        self.state: Any = method.start()
        self.steps = self.updates = 0
        self.previous: Trained | None = None

    # --- one image ----------------------------------------------------------------------------------------------------
    @property
    def warming_up(self) -> bool:
        """Whether too few images were seen for decisions to be trusted."""
        return is_warming_up(self.identifier) or bool(getattr(self.score, "warming_up", False))

    @property
    def trained(self) -> Overlay | None:
        """The trained values, also those of the text tower only; None if the method trains nothing."""
        return self.state.overlay if isinstance(self.state, HoldsTrained) else self.method.overlay(self.state)

    def remember(
        self,
        look: Look[Any],
        scored: Scored,
        decision: Decision,
        trained: Trained | None,
        *,
        learns: bool,
        paused: bool,
    ) -> None:
        """Store what an image has taught, after its step succeeded, and count the step.

        `learns` is False while updates are paused or skipped; `paused` means paused by hand, when only the identifier goes on.
        """
        if learns:
            self.method.commit(self.state, look, decision, trained)
        if not paused:
            self.score.remember(look, scored, decision)
        self.identifier.remember(scored.value, scored.evidence)
        if self.levels is not None and not paused:
            self.levels.remember(look.logits, decision.desired)
        self.steps += 1

    def expect_trial(self, gradient: Gradient | None) -> None:
        """Note the values before a gradient step that no image was seen through yet; None if there is no such step."""
        self.previous = None
        if gradient is not None and isinstance(self.state, HoldsTrained):
            self.previous = Trained(gradient.overlay, gradient.optimiser)

    @contextmanager
    def without_last_step(self) -> Iterator[None]:
        """The values before the last gradient step, for the time of the block."""
        last = Trained(self.state.overlay, self.state.optimiser)
        self.state.keep(self.previous)
        try:
            yield
        finally:
            self.state.keep(last)

    def undo_last_step(self) -> None:
        """Return to the values before the last gradient step."""
        self.state.keep(self.previous)
        self.previous = None

    def count_update(self) -> bool:
        """Count an update; return whether the trained values went back to the start, as `reset_every` asks."""
        if not self._reset_every:
            return False
        self.updates += 1
        if self.updates < self._reset_every:
            return False
        self._restart(self.state.restarted(self.method.start()))
        return True

    # --- the whole ----------------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Forget everything."""
        self.restart()
        self.steps = 0

    def restart(self) -> None:
        """Forget everything but the number of steps."""
        self._restart(self.method.start())

    def _restart(self, state: Any) -> None:
        # What score and identifier remember comes from the trained model, and cannot be compared with the one at the start.
        self.state, self.previous, self.updates = state, None, 0
        self.score.reset()
        self.identifier.reset()
        if self.levels is not None:
            self.levels.reset()

    def tensors(self) -> Tensors:
        """Return all but the number of steps, which a state file describes elsewhere and a snapshot does not change."""
        # Levels and updates only if they are in use: older state files have neither.
        return named(
            method=self.state.tensors(),
            score=self.score.tensors(),
            identifier=self.identifier.tensors(),
            levels={} if self.levels is None else self.levels.tensors(),
            adapter={"updates": torch.tensor(self.updates)} if self._reset_every else {},
        )

    def snapshot(self) -> Tensors:
        """Return `tensors` as copies in main memory, except for trained values, which never change and are shared."""
        values: set[int] = set()
        if isinstance(self.state, HoldsTrained):
            trained = (*self.state.overlay.parameters(), *self.state.optimiser.first, *self.state.optimiser.second)
            values = {tensor.data_ptr() for tensor in trained}
        return {
            name: tensor.detach() if tensor.data_ptr() in values else tensor.detach().to("cpu", copy=True)
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
