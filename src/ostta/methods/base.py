"""What a method is, and what it inherits: `Plain` if it trains nothing, `Tuned` if it takes gradient steps.

A method is a class with an options dataclass, `facts`, and six functions, of which one changes the state:

    start()                                     a fresh state
    overlay(state)                              the values that replace those of the image tower, or None
    look(state, features, views)                logits of an image from its features
    propose(state, look, decision)              the gradient step that the image asks for, or the reason for none
    answer(state, look, trained, features)      logits after a gradient step
    commit(state, look, decision, trained)      store what the image has taught: the only function that changes the state

`Plain` and `Tuned` implement all of them. A method overrides those that differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options
from ..core.banks import FeatureMemory, named
from ..core.checks import require_names, split, stored
from ..core.optimisers import Optimiser
from ..core.overlay import Overlay
from ..core.scores import cosines
from ..core.types import Decision, Look, ViewSource
from .gradient import Gradient, Trained
from .trained_overlay import Group, TrainedOverlay

Loss = Callable[[Look[Any], torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Facts:
    """One line of `ostta ls methods`. Passes are passes of the image tower for one image."""

    trains: str
    state: str
    passes: str
    paper: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a method wants to do with one image. Nothing has changed yet.

    gradient:     the gradient step, or None.
    reason:       why nothing is adapted, or None.
    loss:         the loss of a method that adapts without a gradient step of an overlay; such a method sets `adapted` too.
    diagnostics:  numbers about the step by name, for the prediction.
    """

    gradient: Gradient | None = None
    reason: str | None = None
    loss: float | None = None
    adapted: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)


# --- states -----------------------------------------------------------------------------------------------------------
class State(Protocol):
    """What a method remembers, as named tensors for the state file."""

    def memories(self) -> Mapping[str, FeatureMemory]:
        """Return its banks of images or features by name; banks of known and unknown images are called desired and undesired."""
        return {}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the content of the state."""

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content by what `tensors` returned earlier. A file may hold anything: raise an Error if it does not fit."""


class TensorState(State):
    """A state made of named tensors of fixed shape, which are attributes: `TensorState(sums=torch.zeros(10, 512))`.

    >>> state = TensorState(count=torch.zeros(3))
    >>> state.count[1] += 2
    >>> state.tensors()
    {'count': tensor([0., 2., 0.])}
    """

    def __init__(self, **tensors: torch.Tensor) -> None:
        self._names = tuple(tensors)
        self.__dict__.update(tensors)

    def __getattr__(self, name: str) -> torch.Tensor:
        raise AttributeError(f"The state has no tensor {name!r}.")

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self, name).clone() for name in self._names}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        own = {name: getattr(self, name) for name in self._names}
        require_names(tensors, own)
        found = {name: stored(tensors, name, tensor.dtype, tensor.shape) for name, tensor in own.items()}
        self.__dict__.update({name: found[name].to(tensor.device, copy=True) for name, tensor in own.items()})


@runtime_checkable
class Restarts(Protocol):
    """A state whose trained values can return to the start, as the option `reset_every` asks."""

    def restarted(self, fresh: Self) -> Self:
        """Return the state to continue with, made from this one and a fresh one, without anything that the trained values produced.

        Scores and features of a trained model cannot be compared with those of the model it started from.
        """


@runtime_checkable
class HoldsTrained(Protocol):
    """A state that holds an overlay and an optimiser, which every gradient step replaces."""

    overlay: TrainedOverlay
    optimiser: Optimiser

    def keep(self, trained: Trained | None) -> None:
        """Continue from the result of a gradient step."""


class TunedState:
    """The present overlay and the optimiser of the next step.

    stores_optimiser:  False if the optimiser has nothing to remember, as plain SGD has not.
    """

    stores_optimiser = True

    def __init__(self, overlay: TrainedOverlay, optimiser: Optimiser) -> None:
        self.overlay, self.optimiser = overlay, optimiser

    def keep(self, trained: Trained | None) -> None:
        if trained is not None:
            assert isinstance(trained.optimiser, Optimiser)
            self.overlay, self.optimiser = trained.overlay, trained.optimiser

    def restarted(self, fresh: TunedState) -> TunedState:
        """Banks stay only if the image tower was not trained: their features are those of the frozen tower then."""
        if self.overlay.trains_vision:
            return fresh
        self.overlay, self.optimiser = fresh.overlay, fresh.optimiser
        return self

    def memories(self) -> Mapping[str, FeatureMemory]:
        return {}

    def tensors(self) -> dict[str, torch.Tensor]:
        optimiser = self.optimiser.stored() if self.stores_optimiser else {}
        return named(overlay=self.overlay.stored(), optimiser=optimiser)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, optimiser = split(tensors, "overlay", "optimiser")
        restored = self.overlay.restored(overlay)
        if self.stores_optimiser:
            self.optimiser = self.optimiser.restored(optimiser, restored.parameters())
        else:
            require_names(optimiser, ())
        self.overlay = restored


# --- methods ----------------------------------------------------------------------------------------------------------
class Method(Protocol):
    """The functions and attributes of a method.

    Options:           a frozen dataclass with defaults.
    views:             the most views it asks for, including the canonical one.
    score_scale:       the largest score: 1 for cosines, 100 for scaled logits.
    looks_with_graph:  whether its gradient steps differentiate through the look.
    looks_in_half:     may be left out: whether `precision=mixed` computes its look in half precision, as the published code does (D32).
    """

    Options: type[Any]
    facts: Facts
    views: int
    score_scale: float
    looks_with_graph: bool

    def __init__(self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: Any) -> None:
        """`classifier` has one unit row per class. Raise an Error if the method cannot work with this backbone."""

    def start(self) -> Any:
        """Return a fresh state."""

    def overlay(self, state: Any) -> Overlay | None:
        """Return the values that replace those of the image tower in a look; None for the frozen tower."""

    def look(self, state: Any, features: torch.Tensor, views: ViewSource) -> Look[Any]:
        """Return the logits of one image under `state`, from its unit features [D] under `overlay(state)`."""

    def propose(self, state: Any, look: Look[Any], decision: Decision) -> Proposal:
        """Return what the image of `look` asks for."""

    def answer(self, state: Any, look: Look[Any], trained: Trained, features: torch.Tensor) -> torch.Tensor | None:
        """Return the logits of the image after its gradient step, from its features under the new values.

        None means that the class is named from the logits before the step.
        """

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: Trained | None) -> None:
        """Store what the image has taught. `trained` is the result of the proposed gradient step, with finite values."""


class Plain:
    """Base of methods that train nothing: the frozen classifier without a memory.

    A method overrides what it does differently; the options, the classifier and the logit scale are attributes.
    """

    Options: type[Any] = Options
    views = 1
    score_scale = 1.0
    looks_with_graph = False
    looks_in_half = False

    def __init__(self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: Any) -> None:
        self.options, self.classifier, self.logit_scale = options, classifier, backbone.logit_scale

    def start(self) -> Any:
        return TensorState()

    def overlay(self, state: Any) -> Overlay | None:
        return None

    def look(self, state: Any, features: torch.Tensor, views: ViewSource) -> Look[Any]:
        z = cosines(features, self.classifier)
        return Look(views, features, z, z, None)

    def propose(self, state: Any, look: Look[Any], decision: Decision) -> Proposal:
        return Proposal(reason="this method trains no parameters")

    def answer(self, state: Any, look: Look[Any], trained: Trained, features: torch.Tensor) -> torch.Tensor | None:
        return None

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: Trained | None) -> None:
        """Store nothing."""


class Tuned:
    """Base of methods that train: LayerNorms of the image tower, or the group in the option `group`.

    A method implements `propose`, in which `self.step(state, loss)` proposes a gradient step. The optimiser is plain SGD with the rate
    of the option `lr`, unless the method overrides `optimiser`. `initial` is the overlay at the start.
    """

    views = 1
    score_scale = 1.0
    looks_with_graph = True
    looks_in_half = False

    def __init__(self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: Any) -> None:
        self.options, self.classifier, self.logit_scale = options, classifier, backbone.logit_scale
        group: Group = getattr(options, "group", "layernorm")
        self.initial = TrainedOverlay(backbone, classifier, classes, group, getattr(options, "rank", 16))

    def optimiser(self) -> Optimiser:
        """Return the optimiser of the first step."""
        return Optimiser("sgd", self.options.lr)

    def start(self) -> Any:
        return TunedState(self.initial, self.optimiser())

    def overlay(self, state: Any) -> Overlay | None:
        overlay: Overlay = state.overlay
        return overlay

    def look(self, state: Any, features: torch.Tensor, views: ViewSource) -> Look[Any]:
        return look_through(state.overlay, features, views)

    def step(
        self,
        state: Any,
        loss: Loss,
        augmented: int = 0,
        pixels: torch.Tensor | None = None,
        looks_again: bool = True,
        diagnostics: Mapping[str, float] | None = None,
    ) -> Proposal:
        """Propose a gradient step on `loss`; the other arguments are those of `Gradient` and `Proposal`."""
        looks_again = looks_again and state.overlay.trains_vision
        gradient = Gradient(state.overlay, state.optimiser, loss, augmented, looks_again, pixels)
        return Proposal(gradient, diagnostics=diagnostics or {})

    def answer(self, state: Any, look: Look[Any], trained: Trained, features: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(state, HoldsTrained):  # a state of another kind: only plain cosines can be computed
            return cosines(features, trained.overlay.classifier) if look.logits is look.cosines else None
        after: Any = copy.copy(state)
        after.keep(trained)
        return self.look(after, features, look.views).logits

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: Trained | None) -> None:
        state.keep(trained)


def look_through(overlay: TrainedOverlay, features: torch.Tensor, views: ViewSource) -> Look[Any]:
    """Return the cosines to the classifier of an overlay; `features` carry a graph if the image tower is trained."""
    z = cosines(features, overlay.classifier)
    return Look(views, features, z, z, None)
