"""What a method is: options, a state, and two functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from ..backbones.protocol import Backbone
from ..core.overlay import Overlay
from ..core.types import Decision, Look, Outcome, ViewSource


@dataclass(frozen=True, slots=True)
class Facts:
    """One line of `ostta ls methods`. Passes are of the image tower, for one image."""

    trains: str
    state: str
    passes: str
    paper: str


class State(Protocol):
    """What a method remembers, as named tensors for the state file."""

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def load(self, tensors: dict[str, torch.Tensor]) -> None: ...


class Method(Protocol):
    """`look` is pure; `learn` is the only function that changes the state, and changes nothing when it reports a reason.

    views:        how many views it may ask for, the canonical one included.
    score_scale:  the largest score: 1 for cosines, 100 for scaled logits.
    scores_in_half: whether the published code takes its scores in half precision, with the option `precision=mixed` (D32).
    """

    name: str
    Options: type[Any]
    facts: Facts
    views: int
    score_scale: float
    scores_in_half: bool

    def __init__(self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: Any) -> None:
        """`classifier` has one row for each of `classes`. An Error where the method cannot work with this backbone."""

    def start(self) -> Any:
        """A fresh state."""

    def look(self, state: Any, views: ViewSource) -> Look:
        """Features and logits of one image under `state`."""

    def learn(self, state: Any, look: Look, decision: Decision) -> Outcome:
        """Adapt `state` to the image of `look`, or say why not."""


@runtime_checkable
class SharesTower(Protocol):
    """A method that lets somebody else run the image tower for its looks, as a pool of streams does."""

    def overlay(self, state: Any) -> Overlay | None:
        """What lies over the image tower in a look; None where the frozen tower looks."""

    def look(self, state: Any, views: ViewSource, features: torch.Tensor | None = None) -> Look:
        """`Method.look`, from the canonical view's unit `features` where these are known."""
