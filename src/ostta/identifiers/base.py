"""What an identifier is: recent scores in, a decision out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..config.declare import Options
from ..core.banks import ScoreBank
from ..core.checks import require_names
from ..core.former_names import accept_former_name
from ..core.types import NO_EVIDENCE, Decision, Evidence


class Identifier:
    """Base of identifiers. An identifier without a memory implements `peek` only; any class with these functions works as well.

    Only `remember`, `observe`, `reset` and `load` change an identifier.

    Options:     a frozen dataclass with defaults; may be left out.
    about:       one line for `ostta ls identifiers`.
    needs:       the name of the only score that it can judge; None if it can judge any.
    warming_up:  may be left out: whether it knows too few scores for its decisions to be trusted. Without it, an identifier is
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
        """`options` is an instance of `Options`, None for the defaults; `scale` is the largest score, None if there is none."""
        self.options = options or self.Options()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        accept_former_name(cls)

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        """Return the decision for `score` and its `evidence` as if the score had been remembered. Changes nothing."""
        raise NotImplementedError

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        """Store the score."""

    def observe(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        """Decide, and remember the score."""
        decision = self.peek(score, evidence)
        self.remember(score, evidence)
        return decision

    def memories(self) -> Mapping[str, ScoreBank]:
        """Return its banks of scores by name."""
        return {}

    def reset(self) -> None:
        """Forget all scores."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what it remembers, for the state file."""
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace what it remembers by the result of an earlier `tensors`."""
        require_names(tensors, ())


def is_warming_up(identifier: Identifier) -> bool:
    """Return whether an identifier knows too few scores for its decisions to be trusted, by `warming_up` or by its banks.

    >>> identifier = ostta.identifiers.LDA()
    >>> for number in range(40):
    ...     identifier.remember(0.2 + 0.01 * (number % 7))
    >>> is_warming_up(identifier), is_warming_up(ostta.identifiers.LDA())
    (False, True)
    """
    declared = getattr(identifier, "warming_up", None)
    if declared is not None:
        return bool(declared)
    # A plug-in may have no `memories`.
    memories: Mapping[str, object] = getattr(identifier, "memories", dict)()
    return any(bank.young for bank in memories.values() if isinstance(bank, ScoreBank))
