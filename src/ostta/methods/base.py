"""Base classes of methods: `FrozenMethod`, `Learner` (learns without gradient steps) and `GradientMethod`.

A method is a class with an options dataclass, `summary`, and six functions, of which only `commit` changes the state:

    start()                                     a fresh state
    overlay(state)                              the values that replace those of the image tower, or None
    look(state, features, views)                logits of an image from its features
    propose(state, look, decision)              the gradient step for the image, or the reason for none
    answer(state, look, trained, features)      logits after a gradient step
    commit(state, look, decision, trained)      store what was learned

The base classes implement these functions. A method overrides those that differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options
from ..core.banks import FeatureBank, FeatureMemory, named
from ..core.checks import require_names, split, stored
from ..core.losses import cosines
from ..core.optimisers import Optimiser, ProposedStep, StepResult
from ..core.overlay import Overlay, TrainedOverlay
from ..core.types import Decision, Look, Verdict, ViewSource
from .groups import Group, build_overlay

Loss = Callable[[Look[Any], torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class MethodSummary:
    """One line of `ostta ls methods`. Passes are passes of the image tower per image."""

    trains: str
    state: str
    passes: str
    paper: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The update that a method proposes for one image. Nothing has changed yet.

    gradient:     the gradient step, or None.
    reason:       why nothing is adapted, or None.
    loss:         the loss of a method that adapts without a gradient step on an overlay.
    adapted:      whether the image changes the memory of a method that adapts without a gradient step on an overlay.
    diagnostics:  numbers about the step by name, for the prediction.
    """

    gradient: ProposedStep | None = None
    reason: str | None = None
    loss: float | None = None
    adapted: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)


# --- states -----------------------------------------------------------------------------------------------------------
class State(Protocol):
    """Memory of a method, as named tensors for the state file."""

    def memories(self) -> Mapping[str, FeatureMemory]:
        """Return banks of images or features by name.

        Banks of known and unknown images are called `desired` and `undesired`.
        """
        return {}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the content of the state."""

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content by the result of an earlier `tensors`.

        The tensors may come from an untrusted file: raise an Error if they do not fit.
        """


class TensorState(State):
    """A state of named tensors with fixed shapes, available as attributes: `TensorState(sums=torch.zeros(10, 512))`.

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
        loaded = {name: stored(tensors, name, tensor.dtype, tensor.shape) for name, tensor in own.items()}
        self.__dict__.update({name: loaded[name].to(tensor.device, copy=True) for name, tensor in own.items()})


@runtime_checkable
class Restarts(Protocol):
    """A state whose trained values can be reset, for the option `reset_every`."""

    def restarted(self, fresh: Self) -> Self:
        """Return the state after a reset, from this state and a fresh one.

        The result must not contain anything that was computed with the trained values, because scores and features of
        the trained and of the initial model are not comparable.
        """


@runtime_checkable
class HoldsTrained(Protocol):
    """A state with an overlay and an optimiser, which every gradient step replaces."""

    overlay: TrainedOverlay
    optimiser: Optimiser

    def keep(self, trained: StepResult | None) -> None:
        """Continue from the result of a gradient step."""


class GradientState:
    """The current overlay, the optimiser for the next step, and banks of features, which are attributes by name.

    stores_optimiser:  False if the optimiser has no state, such as plain SGD.
    """

    stores_optimiser = True

    def __init__(self, overlay: TrainedOverlay, optimiser: Optimiser, **banks: FeatureBank) -> None:
        self.overlay, self.optimiser, self._banks = overlay, optimiser, banks
        self.__dict__.update(banks)

    def keep(self, trained: StepResult | None) -> None:
        if trained is not None:
            assert isinstance(trained.optimiser, Optimiser)
            self.overlay, self.optimiser = trained.overlay, trained.optimiser

    def restarted(self, fresh: GradientState) -> GradientState:
        """Return `fresh`, or this state with fresh trained values if the image tower is not trained.

        In the second case the banks stay valid, because their features come from the frozen tower.
        """
        if self.overlay.trains_vision:
            return fresh
        self.overlay, self.optimiser = fresh.overlay, fresh.optimiser
        return self

    def memories(self) -> Mapping[str, FeatureMemory]:
        return self._banks

    def tensors(self) -> dict[str, torch.Tensor]:
        optimiser = self.optimiser.stored() if self.stores_optimiser else {}
        banks = {name: bank.tensors() for name, bank in self._banks.items()}
        return named(overlay=self.overlay.stored(), optimiser=optimiser, **banks)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, optimiser, *banks = split(tensors, "overlay", "optimiser", *self._banks)
        for bank, content in zip(self._banks.values(), banks, strict=True):
            bank.load(content)
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
    views:             the maximum number of views that the method needs, including the canonical view.
    largest_score:     the largest score: 1 for cosines, 100 for scaled logits.
    looks_with_graph:  whether gradient steps differentiate through the look.
    looks_in_half:     whether `precision=mixed` computes the look in half precision, as the published code does (D32);
                       optional.
    """

    Options: type[Any]
    summary: MethodSummary
    views: int
    largest_score: float
    looks_with_graph: bool

    def __init__(self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: Any) -> None:
        """Create the method. Raise an Error if it cannot work with this backbone.

        `classifier` has one unit row per class.
        """

    def start(self) -> Any:
        """Return a fresh state."""

    def overlay(self, state: Any) -> Overlay | None:
        """Return the values that replace those of the image tower in a look; None for the frozen tower."""

    def look(self, state: Any, features: torch.Tensor, views: ViewSource) -> Look[Any]:
        """Return the logits of one image under `state`, from its unit features [D] under `overlay(state)`."""

    def propose(self, state: Any, look: Look[Any], decision: Decision) -> Proposal:
        """Return the update for the image of `look`."""

    def answer(self, state: Any, look: Look[Any], trained: StepResult, features: torch.Tensor) -> torch.Tensor | None:
        """Return the logits of the image after its gradient step, from its features under the new values.

        None means that the class is predicted from the logits before the step.
        """

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: StepResult | None) -> None:
        """Store what was learned from the image.

        `trained` is the result of the proposed gradient step, with finite values.
        """


class FrozenMethod:
    """Base of methods without training: the frozen classifier without a memory.

    Subclasses override the functions that differ. The options, the classifier and the logit scale are attributes.
    """

    Options: type[Any] = Options
    views = 1
    largest_score = 1.0
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

    def answer(self, state: Any, look: Look[Any], trained: StepResult, features: torch.Tensor) -> torch.Tensor | None:
        return None

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: StepResult | None) -> None:
        """Store nothing."""


class Learner(FrozenMethod):
    """Base of methods that learn from reliably known images without gradient steps. A method implements `learn`."""

    def learn(self, state: Any, look: Look[Any]) -> None:
        """Update the state with a reliably known image."""
        raise NotImplementedError

    def propose(self, state: Any, look: Look[Any], decision: Decision) -> Proposal:
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            return Proposal(adapted=True)
        return Proposal(reason="the image is not reliably known")

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: StepResult | None) -> None:
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            self.learn(state, look)


class GradientMethod:
    """Base of methods that train the LayerNorms of the image tower, or the group in the option `group`.

    A method implements `propose`, in which `self.step(state, loss)` proposes a gradient step. The optimiser is plain
    SGD with the learning rate `lr`, unless the method overrides `optimiser`. `initial` is the overlay at the start.
    """

    views = 1
    largest_score = 1.0
    looks_with_graph = True
    looks_in_half = False

    def __init__(self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: Any) -> None:
        self.options, self.classifier, self.logit_scale = options, classifier, backbone.logit_scale
        group: Group = getattr(options, "group", "layernorm")
        self.initial = build_overlay(backbone, classifier, classes, group, getattr(options, "rank", 16))

    def optimiser(self) -> Optimiser:
        """Return the optimiser for the first step."""
        return Optimiser("sgd", self.options.lr)

    def start(self) -> Any:
        return GradientState(self.initial, self.optimiser())

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
        """Propose a gradient step on `loss`; the other arguments are those of `ProposedStep` and `Proposal`."""
        looks_again = looks_again and state.overlay.trains_vision
        gradient = ProposedStep(state.overlay, state.optimiser, loss, augmented, looks_again, pixels)
        return Proposal(gradient, diagnostics=diagnostics or {})

    def answer(self, state: Any, look: Look[Any], trained: StepResult, features: torch.Tensor) -> torch.Tensor | None:
        if not isinstance(state, HoldsTrained):  # for any other state, only plain cosines can be computed
            return cosines(features, trained.overlay.classifier) if look.logits is look.cosines else None
        after: Any = copy.copy(state)
        after.keep(trained)
        return self.look(after, features, look.views).logits

    def commit(self, state: Any, look: Look[Any], decision: Decision, trained: StepResult | None) -> None:
        state.keep(trained)


def look_through(overlay: TrainedOverlay, features: torch.Tensor, views: ViewSource) -> Look[Any]:
    """Return the cosines to the classifier of an overlay; `features` have a graph if the image tower is trained."""
    z = cosines(features, overlay.classifier)
    return Look(views, features, z, z, None)
