"""What the methods share that train something: the parameter groups, one look under an overlay, one step of an optimiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from ..backbones.lora import with_lora
from ..backbones.prompts import prompted
from ..backbones.protocol import Backbone
from ..core.groups import block_names, layernorm_names
from ..core.optimisers import Optimiser
from ..core.overlay import Overlay
from ..core.scores import cosines, unit
from ..core.types import Decision, Error, Look, Outcome, ViewSource

NOT_FINITE = "the loss or its gradient is not finite"
# The ranks that "lora" takes; above the width of a tower none is low.
RANKS = (1, 1024)
Group = Literal["layernorm", "prompts", "full", "first_block", "last_block", "prompts+layernorm", "lora"]


class Tuned(Overlay):
    """An overlay over both towers: over the image tower, and over what the classifier is made from.

    `classifier` is the present one, without graph; it is worked out again only after its prompts have moved.
    """

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], group: Group, rank: int = 16
    ) -> None:
        self._frozen, self._classes, self._backbone = classifier, classes, backbone
        self._text = prompted(backbone, classes) if "prompts" in group else None
        vision = with_lora(backbone.vision, rank) if group == "lora" else backbone.vision
        names, towers = _names(vision, group), vision
        # The whole network has a text tower too, where there is one.
        text_tower = getattr(backbone, "text", None) if group == "full" else None
        if text_tower is not None:
            towers = nn.ModuleDict({"vision": vision, "text": text_tower})
            names = [name for name, _ in towers.named_parameters()]
        free = {}
        if self._text is not None:
            names = [*names, *(name for name in self._text.vision_names if name not in names)]
            free = self._text.free
        super().__init__(towers, names, free, guard=backbone.vision)
        self._vision = vision
        self.trains_text = self._text is not None or text_tower is not None
        self.trains_vision = bool(names)
        if self._text is not None:
            self._require_one_template()
        self._classifier: torch.Tensor | None = classifier

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Unit features [B, D]."""
        with self.applied():
            return unit(self._vision(pixels))

    @property
    def classifier(self) -> torch.Tensor:
        if self._classifier is None:
            with torch.no_grad():
                self._classifier = self.differentiable_classifier()
        return self._classifier

    def differentiable_classifier(self) -> torch.Tensor:
        """The present classifier, with graph where it is trained."""
        if self._text is not None:
            with self.applied():
                return unit(self._text.classify(self.tensors))
        if self.trains_text:
            with self.applied():
                return unit(self._backbone.embed(self._classes))  # type: ignore[attr-defined]
        return self._frozen

    def differentiable(self, look: Look) -> tuple[torch.Tensor, torch.Tensor]:
        """The classifier and the cosines of a look, both with graph wherever something is trained."""
        if not self.trains_text:
            return self._frozen, look.cosines
        classifier = self.differentiable_classifier()
        return classifier, cosines(look.features, classifier)

    def changed(self) -> None:
        """To be called when tensors were moved from outside."""
        if self.trains_text:
            self._classifier = None

    def reset(self) -> None:
        super().reset()
        self._classifier = self._frozen

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        super().load(tensors)
        self.changed()

    def moved(self, tensors: Any) -> Tuned:
        other = super().moved(tensors)
        other.changed()
        return other

    def _require_one_template(self) -> None:
        with torch.no_grad():
            initial = self.differentiable_classifier()
        if not torch.allclose(initial, self._frozen, atol=1e-4):
            raise Error(
                "Prompt tuning starts from the one template 'a photo of a {}.', and this classifier was made from "
                "something else: leave `templates` as it is."
            )


def _names(vision: nn.Module, group: Group) -> list[str]:
    """The parameters of the image tower in `group`; those of prompts are the backbone's own affair."""
    match group:
        case "layernorm" | "prompts+layernorm":
            return layernorm_names(vision)
        case "first_block" | "last_block":
            return block_names(vision, 0 if group == "first_block" else -1)
        case "full":
            return [name for name, _ in vision.named_parameters()]
        case "lora":
            return [name for name, _ in vision.named_parameters() if ".lora_" in name]
        case "prompts":
            return []


def reaches_vision(backbone: Backbone, classes: Sequence[str], group: Group) -> bool:
    """Whether the group holds anything that image features depend on: prompts do so only where the image tower has them."""
    return group != "prompts" or bool(prompted(backbone, classes).vision_names)


def look(tuned: Tuned, views: ViewSource, features: torch.Tensor | None = None) -> Look:
    """The canonical view under the overlay; its features carry a graph where the image tower is trained.

    `features`, where they are known already, are its unit features [D].
    """
    if features is None:
        features = tuned.features(views.canonical)[0]
    z = cosines(features, tuned.classifier)
    return Look(views, features, z, z)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A step that waits for its gradient: what remains of `learn` once the method knows that it wants one.

    `loss` is a function of a look at the image and of the unit features [augmented, D] of so many more views. `settle` takes what
    became of the step and gives the outcome; it must be called once, for it takes back what a failed step has left in the banks.
    """

    optimiser: Optimiser
    loss: Callable[[Look, torch.Tensor], torch.Tensor]
    settle: Callable[[Outcome], Outcome]
    augmented: int = 0


class Training:
    """What the methods share that train what their state's overlay holds. They say which step they want; it is taken here."""

    def overlay(self, state: Any) -> Tuned:
        tuned: Tuned = state.overlay
        return tuned

    def look(self, state: Any, views: ViewSource, features: torch.Tensor | None = None) -> Look:
        return look(self.overlay(state), views, features)

    def propose(self, state: Any, look: Look, decision: Decision) -> Proposal | Outcome:
        """The step that the image of `look` asks for; an outcome where it asks for none."""
        raise NotImplementedError

    def learn(self, state: Any, look: Look, decision: Decision) -> Outcome:
        proposed = self.propose(state, look, decision)
        return proposed if isinstance(proposed, Outcome) else _carry_out(self.overlay(state), look, proposed)


def _carry_out(tuned: Tuned, seen: Look, proposal: Proposal) -> Outcome:
    augmented = seen.features[None][:0]
    try:
        if proposal.augmented:
            augmented = tuned.features(seen.views.augmented(proposal.augmented))
        loss = proposal.loss(seen, augmented)
        # A loss need not reach all of a group: L_U says nothing about prompts that are trained beside the LayerNorms.
        gradients = torch.autograd.grad(loss, tuned.parameters(), materialize_grads=True)
    except BaseException:  # a lack of memory, Ctrl-C: the banks are as before, and whoever can deal with it may
        proposal.settle(Outcome(failed=True))
        raise

    def answer() -> torch.Tensor:
        with torch.no_grad():
            return look(tuned, seen.views).logits

    return proposal.settle(move(tuned, proposal.optimiser, loss, gradients, answer))


def move(
    tuned: Tuned,
    optimiser: Optimiser,
    loss: torch.Tensor,
    gradients: Sequence[torch.Tensor],
    answer: Callable[[], torch.Tensor],
) -> Outcome:
    """One step of the optimiser, or a failed outcome that moved nothing."""
    if not finite(loss, gradients):
        return Outcome(reason=NOT_FINITE, failed=True)
    optimiser.move(tuned.parameters(), gradients)
    tuned.changed()
    return Outcome(loss=float(loss.detach()), adapted=True, answer=answer)


def finite(loss: torch.Tensor, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the loss and all of the tensors are."""
    norms = torch.stack(torch._foreach_norm(list(tensors)))
    return bool(torch.isfinite(loss.detach() + norms.sum()))
