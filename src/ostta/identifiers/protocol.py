"""What an identifier is: recent scores in, a decision out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from ..core.memory import ScoreBank
from ..core.types import Decision


class Identifier(Protocol):
    """Turns recent scores into a threshold. `statistic` says which score it wants: "max" of the logits, or "msp"."""

    statistic: str

    def peek(self, score: float) -> Decision:
        """The decision for `score` as if it had been taken into the bank; changes nothing."""

    def take(self, score: float) -> None:
        """Take `score` into the bank."""

    def observe(self, score: float) -> Decision:
        """`take` and decide."""

    def memories(self) -> Mapping[str, ScoreBank]:
        """Its banks of scores by name."""

    def reset(self) -> None: ...

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def load(self, tensors: dict[str, torch.Tensor]) -> None: ...
