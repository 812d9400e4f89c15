"""What a method is: options, a state, and four functions, of which one changes the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import torch

from ..backbones.protocol import Backbone
from ..core.banks import FeatureMemory
from ..core.optimisers import Stepper
from ..core.overlay import Overlay
from ..core.types import Decision, Look, ViewSource
from .trained_overlay import Tuned


@dataclass(frozen=True, slots=True)
class Facts:
    """One line of `ostta ls methods`. Passes are of the image tower, for one image."""

    trains: str
    state: str
    passes: str
    paper: str


class State(Protocol):
    """What a method remembers, as named tensors for the state file. A class that inherits it has no memories of features."""

    def memories(self) -> Mapping[str, FeatureMemory]:
        """Its banks and caches of images, or of their features, by name; those of known and unknown images are called desired and undesired."""
        return {}

    def tensors(self) -> dict[str, torch.Tensor]: ...

    def load(self, tensors: dict[str, torch.Tensor]) -> None: ...


@runtime_checkable
class Restarts(Protocol):
    """A state of which what was trained can go back to the start, as the option `reset_every` asks."""

    def restarted(self, fresh: Self) -> Self:
        """The state to go on with, from this one, which ends, and a fresh one: without anything that the trained values gave.

        Scores and features of a trained model cannot be compared with those of the model it started from.
        """


@dataclass(frozen=True, slots=True)
class Gradient:
    """A step along the gradient of one image's loss: through which values, by which optimiser.

    `loss` is a function of a look at the image, with graph, and of the unit features [N, D] of further images, with graph too: of
    `augmented` more views of it, and then of `pixels` [.., 3, H, W], other images as the canonical view has them. `looks_again` says
    whether the answer needs the image's features under the new values. `answer` gives the logits after the step, from the new overlay and
    these features. A method needs it only if its logits are not the cosines and its state is not a `TunedState`, which `look` can read.
    """

    overlay: Tuned
    optimiser: Stepper
    loss: Callable[[Look[Any], torch.Tensor], torch.Tensor]
    augmented: int = 0
    looks_again: bool = True
    pixels: torch.Tensor | None = None
    answer: Callable[[Tuned, torch.Tensor], torch.Tensor] | None = None

    @property
    def further(self) -> int:
        """How many images are encoded beside the look's own."""
        return self.augmented + (0 if self.pixels is None else len(self.pixels))

    def further_images(self, views: ViewSource) -> torch.Tensor:
        """These images [further, 3, H, W]; there must be one at least."""
        parts = [views.augmented(self.augmented)] if self.augmented else []
        parts += [] if self.pixels is None else [self.pixels]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True, slots=True)
class Trained:
    """What a gradient step leads to: other values, the optimiser of the next step, and the loss that was differentiated."""

    overlay: Tuned
    optimiser: Stepper
    loss: float


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a gradient step cannot be taken. Then nothing of the image may be remembered."""

    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a method wants to do with one image. Nothing has changed yet.

    gradient:     a step to be taken; None where the image asks for none.
    reason:       why nothing is adapted, or None.
    loss:         of a method that has adapted without a gradient step of the overlay, as has `adapted`.
    diagnostics:  numbers about the step by name, for the prediction.
    """

    gradient: Gradient | None = None
    reason: str | None = None
    loss: float | None = None
    adapted: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)


OfState = TypeVar("OfState", bound=State)
OfOptions = TypeVar("OfOptions")
OfPlan = TypeVar("OfPlan")


class Method(Protocol[OfState, OfOptions, OfPlan]):
    """A frozen options dataclass, a state, and the functions below. Only `commit` changes the state; the others are pure.

    views:              how many views it may ask for, the canonical one included.
    score_scale:        the largest score: 1 for cosines, 100 for scaled logits.
    looks_with_graph:   whether its gradient steps go back through the look itself.
    """

    name: str
    Options: type[OfOptions]
    facts: Facts
    views: int
    score_scale: float
    looks_with_graph: bool

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: OfOptions
    ) -> None:
        """`classifier` has one row for each of `classes`. An Error where the method cannot work with this backbone."""

    def start(self) -> OfState:
        """A fresh state."""

    def overlay(self, state: OfState) -> Overlay | None:
        """What lies over the image tower in a look; None where the frozen tower looks."""

    def look(self, state: OfState, features: torch.Tensor, views: ViewSource) -> Look[OfPlan]:
        """Logits of one image under `state`, from its unit features [D] under `overlay(state)`."""

    def propose(self, state: OfState, look: Look[OfPlan], decision: Decision) -> Proposal:
        """What the image of `look` asks for."""

    def commit(self, state: OfState, look: Look[OfPlan], decision: Decision, trained: Trained | None) -> None:
        """Store what the image has taught. `trained` is what became of the proposed gradient step, seen to be finite."""
