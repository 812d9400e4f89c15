"""Base class of identifiers, which turn recent scores into decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..config.declare import Options
from ..core.banks import ScoreBank
from ..core.checks import require_names
from ..core.types import NO_EVIDENCE, Decision, Evidence


class Identifier:
    """Base of identifiers.

    An identifier without a memory implements only `peek`. Any class with the same functions works as well.

    Only `remember`, `observe`, `reset` and `load` change an identifier.

    Options:     a frozen dataclass with defaults; optional.
    about:       one line for `ostta ls identifiers`.
    needs:       the name of the score that the identifier requires; None if it works with any score.
    warming_up:  whether there are too few scores for reliable decisions; optional. Without it, an identifier is
                 warming up while one of its `memories` is young.

    >>> identifier: Identifier = ostta.identifiers.LDA()
    >>> for score in (0.18, 0.33):
    ...     identifier.remember(score)
    >>> identifier.peek(0.2).verdict.value, identifier.peek(0.2).threshold  # asked twice: nothing changes
    ('unreliable_undesired', 0.21)
    >>> identifier.reset()
    >>> identifier.observe(0.2).threshold
    0.0
    """

    Options: type[Any] = Options
    about: str
    needs: str | None = None
    options: Any

    def __init__(self, options: Any = None, *, scale: float | None = 1.0) -> None:
        """Create an identifier.

        `options` is an instance of `Options`, or None for the defaults. `scale` is the largest possible score, or None
        if scores are unbounded.
        """
        self.options = options or self.Options()

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        """Return the decision for `score` and its `evidence` as if the score had been remembered. Changes nothing."""
        raise NotImplementedError

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        """Store the score."""

    def observe(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        """Return the decision for `score` and store the score."""
        decision = self.peek(score, evidence)
        self.remember(score, evidence)
        return decision

    def memories(self) -> Mapping[str, ScoreBank]:
        """Return the banks of scores by name."""
        return {}

    def reset(self) -> None:
        """Forget all scores."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the content of the memory, for the state file."""
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content of the memory by the result of an earlier `tensors`."""
        require_names(tensors, ())
