"""What an identifier is: recent scores in, a decision out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from ..core.banks import ScoreBank
from ..core.types import NO_EVIDENCE, Decision, Evidence


class Identifier(Protocol):
    """Turns recent scores into a threshold. Only `take`, `observe`, `reset` and `load` change it.

    Options:    its options, a frozen dataclass with defaults.
    about:      one line for `ostta ls identifiers`.
    needs:      the name of the only score that it can judge; None where it can judge any.
    warming_up: may be left out: whether it knows too few scores for its decisions to be trusted. Where it is, an identifier
                is warming up while one of its `memories` is young.

    >>> identifier: Identifier = ostta.identifiers.LDA()
    >>> for score in (0.18, 0.33):
    ...     identifier.take(score)
    >>> identifier.peek(0.2).verdict.value, identifier.peek(0.2).threshold  # asked twice: nothing changes
    ('unreliable_undesired', 0.21)
    >>> identifier.reset()
    >>> identifier.observe(0.2).threshold
    0.0
    """

    Options: type[Any]
    about: str
    needs: str | None

    def __init__(self, options: Any = None, *, scale: float | None = 1.0) -> None:
        """`options` is one of `Options`, None for the defaults; `scale` is the largest score, None where scores are not confined."""

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        """The decision for `score`, which is made of `evidence`, as if it had been taken into the bank; changes nothing."""

    def take(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        """Take `score` into the bank."""

    def observe(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        """`take` and decide."""

    def memories(self) -> Mapping[str, ScoreBank]:
        """Its banks of scores by name."""

    def reset(self) -> None: ...

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def load(self, tensors: dict[str, torch.Tensor]) -> None: ...


def is_warming_up(identifier: Identifier) -> bool:
    """Whether an identifier knows too few scores for its decisions to be trusted, by its own word or by its banks.

    >>> identifier = ostta.identifiers.LDA()
    >>> for number in range(40):
    ...     identifier.take(0.2 + 0.01 * (number % 7))
    >>> is_warming_up(identifier), is_warming_up(ostta.identifiers.LDA())
    (False, True)
    """
    said = getattr(identifier, "warming_up", None)
    if said is not None:
        return bool(said)
    # One from outside may have no banks that it names.
    memories: Mapping[str, object] = getattr(identifier, "memories", dict)()
    return any(bank.young for bank in memories.values() if isinstance(bank, ScoreBank))
