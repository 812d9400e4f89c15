"""ROSITA: contrast reliable known images with reliable unknown ones, and train only the LayerNorms (paper section 4).

    verdict of the image      loss                  banks
    reliable, known           L_Re + w L_D          the feature enters the bank of known images, with its class
    reliable, unknown         w L_U                 the feature enters the bank of unknown images
    not reliable              none                  none

    L_Re  cross-entropy of the image and of one augmented view, both against the best class of the image
    L_D   towards the K nearest known features of the same class, away from the K nearest unknown ones
    L_U   towards the K nearest unknown features, away from the K nearest known ones

The losses are in `core/losses.py`, the banks in `core/banks.py`, and the verdict is that of `identifiers/lda.py`.

Cost, in forward passes of the image tower: one with graph for every image; a backward pass for a reliable unknown
image; the augmented view, a backward pass through both views and a second look for a reliable known image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from ..backbones.protocol import Backbone
from ..config.declare import option
from ..core.banks import FeatureBank
from ..core.losses import NearestFeatures, cosines, desired_contrast, nearest, pseudo_label_loss, undesired_contrast
from ..core.optimisers import StepResult
from ..core.types import Decision, Error, Look, Verdict
from .base import GradientMethod, GradientState, MethodSummary, Proposal
from .groups import Group, GroupOptions, group_option, rank_option, reaches_vision

Part = Literal["re", "d", "u"]
PARTS: tuple[Part, ...] = get_args(Part)
NO_LOSS = Proposal(reason="no loss applies: the feature banks are still filling, or the chosen losses leave it out")


@dataclass(frozen=True)
class RositaOptions(GroupOptions):
    """Options of `rosita`. Defaults are those of the published code; the profile `paper` has those of the paper."""

    lr: float = option(1e-3, above=0, about="learning rate of SGD without momentum")
    losses: tuple[Part, ...] = option(PARTS, about="losses that are used: L_Re, L_D, L_U")
    k: int = option(
        5,
        bounds=(1, 10_000),
        about="number of neighbours from each bank; the bank of known images holds k features per class",
    )
    contrast_weight: float = option(0.5, paper=1.0, number="D2", about="weight of L_D and L_U")
    normaliser: Literal["k", "matches"] = option(
        "k", paper="matches", number="D3", about="divisor of L_D: K, or the number K+ of neighbours of the same class"
    )
    temperature: float = option(1.0, number="D4", above=0, about="temperature of L_D and L_U; the paper gives no value")
    entropy_scale: float = option(1.0, number="D5", about="factor of the cosines in L_Re")
    neighbours: Literal["with_self", "without_self"] = option(
        "with_self", number="D6", about="whether an image may be its own nearest positive neighbour"
    )
    undesired_bank: int = option(
        64,
        number="D7",
        bounds=(2, 1_000_000),
        about="size of the bank of unknown images; the memory table of the paper implies 320",
    )
    desired_bank: Literal["shared", "per_class"] = option(
        "shared",
        number="D31",
        about="bank of known images: one shared bank of K x C features, or K features for each class",
    )
    group: Group = group_option()
    rank: int = rank_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = sorted(set(self.losses) - set(PARTS))
        if unknown or not self.losses:
            names = ", ".join(unknown) or "nothing"
            raise Error(f"`losses` must be one or more of re, d, u, not {names}.", code="option-invalid")
        if self.undesired_bank <= self.k:
            raise Error(
                f"`undesired_bank` ({self.undesired_bank}) must exceed `k` ({self.k}), or L_D and L_U never start.",
                code="option-invalid",
            )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[Any, ...]]:
        return super().stored_shapes(classes, width) | {
            "desired/features": (self.k * classes, width),
            "undesired/features": (self.undesired_bank, width),
        }


class RositaState(GradientState):
    """The trained values and the two feature banks."""

    stores_optimiser = False
    desired: FeatureBank
    undesired: FeatureBank


class Rosita(GradientMethod):
    """Learn from reliable images: known ones towards their class, known and unknown ones away from each other."""

    Options = RositaOptions
    summary = MethodSummary(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, 5 features a class, 64 features, score bank",
        "1 forward; reliable: +1 backward; reliable desired: +2 forwards, +1 backward",
        "Sreenivas & Biswas 2025 (ROSITA)",
    )
    views = 2
    options: RositaOptions

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: RositaOptions
    ) -> None:
        if not reaches_vision(backbone, classes, options.group) and set(options.losses) != {"re"}:
            raise Error(
                f'L_D and L_U act on image features, and the group "{options.group}" leaves the image tower of '
                f"{backbone.id} as it is: train it with `losses=re` alone, or choose another group.",
                code="option-conflict",
            )
        super().__init__(backbone, classifier, classes, options)

    def start(self) -> RositaState:
        (classes, width), device = self.classifier.shape, self.classifier.device
        groups = classes if self.options.desired_bank == "per_class" else 1
        return RositaState(
            self.initial,
            self.optimiser(),
            desired=FeatureBank(self.options.k * classes, width, groups, device, classes),
            undesired=FeatureBank(self.options.undesired_bank, width, device=device),
        )

    def propose(self, state: RositaState, look: Look[None], decision: Decision) -> Proposal:
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            return self._propose_desired(state, look)
        if decision.verdict is Verdict.RELIABLE_UNDESIRED:
            return self._propose_undesired(state, look)
        return Proposal(reason="the score is not reliable")

    def commit(self, state: RositaState, look: Look[None], decision: Decision, trained: StepResult | None) -> None:
        super().commit(state, look, decision, trained)
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            state.desired.push(look.features, pseudo_label(look))
        elif decision.verdict is Verdict.RELIABLE_UNDESIRED:
            state.undesired.push(look.features)

    def _propose_desired(self, state: RositaState, look: Look[None]) -> Proposal:
        """Propose a step on L_Re + w L_D, or on one of the two losses if only one applies."""
        options, label = self.options, pseudo_label(look)
        contrasted, entropy = None, "re" in options.losses
        if "d" in options.losses and self._enough(state.desired.size_with(label), len(state.undesired)):
            contrasted = self._nearest(look, state.desired, state.undesired, label)
        if contrasted is None and not entropy:
            return NO_LOSS

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            losses = []
            if entropy:
                classifier, z = state.overlay.differentiable(look)
                losses.append(pseudo_label_loss(z, cosines(augmented[0], classifier), label, options.entropy_scale))
            if contrasted is not None:
                own = desired_contrast(look.features, contrasted, label, options.temperature, options.normaliser)
                losses.append(options.contrast_weight * own)
            return torch.stack(losses).sum()

        # K+, the number of neighbours of the same class.
        diagnostics = {} if contrasted is None else {"matches": int((contrasted.labels == label).sum())}
        return self.step(state, loss, augmented=1 if entropy else 0, diagnostics=diagnostics)

    def _propose_undesired(self, state: RositaState, look: Look[None]) -> Proposal:
        """Propose a step on w L_U, if it applies."""
        options = self.options
        if "u" not in options.losses or not self._enough(len(state.desired), state.undesired.size_with()):
            return NO_LOSS
        neighbours = self._nearest(look, state.undesired, state.desired)

        def loss(look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
            return options.contrast_weight * undesired_contrast(look.features, neighbours, options.temperature)

        return self.step(state, loss)

    def _nearest(self, look: Look[None], same: FeatureBank, other: FeatureBank, label: int = 0) -> NearestFeatures:
        with_self = self.options.neighbours == "with_self"
        return nearest(look.features, same, other, self.options.k, label, with_self=with_self)

    def _enough(self, desired: int, undesired: int) -> bool:
        """Return whether both banks hold more than K features, so that K remain if the image itself is excluded."""
        return desired > self.options.k and undesired > self.options.k


def pseudo_label(look: Look[None]) -> int:
    """Return the best class before the update, which is the training target and the stored class."""
    return int(look.logits.argmax())
