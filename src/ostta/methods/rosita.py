"""ROSITA: contrast reliable known images with reliable unknown ones, and move only the LayerNorms (paper section 4).

Costs, in forwards of the image tower: one with graph for every image; for a reliable undesired one a backward; for a reliable
desired one the augmented view, a backward through both, and a second look for the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch

from ..backbones.protocol import Backbone
from ..core.losses import Neighbours, contrast, nearest, reliable_entropy
from ..core.memory import FeatureBank, Pushed, named, parts
from ..core.optimisers import Optimiser
from ..core.scores import cosines
from ..core.types import Decision, Error, Look, Outcome, Verdict
from . import tuning
from .protocol import Facts

Part = Literal["re", "d", "u"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class RositaOptions:
    """Defaults are the published code's values; the `paper` profile changes what its text says otherwise.

    lr: rate of plain SGD.
    losses: which of L_Re, L_D, L_U act, of "re", "d", "u".
    k: neighbours from each bank; the desired bank holds k features a class.
    contrast_weight: the factor of L_D and L_U (D2; the paper has none, that is 1).
    normaliser: L_D divided by "k" (published) or by the "matches" K+ (paper) (D3).
    temperature: of L_D and L_U; a symbol without a value in the paper (D4).
    entropy_scale: factor on the cosines inside L_Re (D5).
    neighbours: an image just stored is "with_self" its own nearest positive (published), or "without_self" (D6).
    undesired_bank: features of unknown images that are kept (D7).
    desired_bank: one "shared" first-in-first-out bank (published), or k places "per_class" (D31).
    group: the parameters that are trained; rank: of "lora".
    """

    lr: float = 1e-3
    losses: tuple[Part, ...] = PARTS
    k: int = 5
    contrast_weight: float = 0.5
    normaliser: Literal["k", "matches"] = "k"
    temperature: float = 1.0
    entropy_scale: float = 1.0
    neighbours: Literal["with_self", "without_self"] = "with_self"
    undesired_bank: int = 64
    desired_bank: Literal["shared", "per_class"] = "shared"
    group: tuning.Group = "layernorm"
    rank: int = 16

    def __post_init__(self) -> None:
        odd = sorted(set(self.losses) - set(PARTS))
        if odd or not self.losses:
            raise Error(f"`losses` takes some of re, d, u, not {', '.join(odd) or 'nothing'}.")
        if self.k < 1:
            raise Error(f"`k` is at least 1, not {self.k}.")
        if self.undesired_bank <= self.k:
            raise Error(
                f"`undesired_bank` must exceed `k` ({self.k}), or L_D and L_U never start; it is {self.undesired_bank}."
            )
        if not self.lr > 0 or not self.temperature > 0:
            raise Error(f"`lr` and `temperature` are above zero, not {self.lr} and {self.temperature}.")


class RositaState:
    """What is trained, and the two feature banks."""

    def __init__(self, overlay: tuning.Tuned, desired: FeatureBank, undesired: FeatureBank) -> None:
        self.overlay = overlay
        self.desired = desired
        self.undesired = undesired

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(
            overlay=self.overlay.snapshot(), desired=self.desired.tensors(), undesired=self.undesired.tensors()
        )

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.desired.load(parts(tensors, "desired/"))
        self.undesired.load(parts(tensors, "undesired/"))
        self.overlay.load(parts(tensors, "overlay/"))


class Rosita(tuning.Training):
    """See the top of this file."""

    name = "rosita"
    Options = RositaOptions
    facts = Facts(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, 5 features a class, 64 features, score bank",
        "1 forward; reliable: +1 backward; reliable desired: +2 forwards, +1 backward",
        "Sreenivas & Biswas 2025 (ROSITA)",
    )
    views = 2
    score_scale = 1.0
    scores_in_half = False

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: RositaOptions
    ) -> None:
        self.options = options
        self.optimiser = Optimiser("sgd", options.lr)
        self._tuned = partial(tuning.Tuned, backbone, classifier, classes, options.group, options.rank)
        self._shape = classifier.shape
        if not tuning.reaches_vision(backbone, classes, options.group) and set(options.losses) != {"re"}:
            raise Error(
                f'L_D and L_U act on image features, and the group "{options.group}" leaves the image tower of '
                f"{backbone.id} as it is: train it with `losses=re` alone, or choose another group."
            )

    def start(self) -> RositaState:
        classes, width = self._shape
        groups = classes if self.options.desired_bank == "per_class" else 1
        return RositaState(
            self._tuned(),
            FeatureBank(self.options.k * classes, width, groups),
            FeatureBank(self.options.undesired_bank, width),
        )

    def propose(self, state: RositaState, look: Look, decision: Decision) -> tuning.Proposal | Outcome:
        label: int | None = None
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            label = int(look.logits.argmax())
            same, other, pushed = state.desired, state.undesired, state.desired.push(look.features, label)
        elif decision.verdict is Verdict.RELIABLE_UNDESIRED:
            same, other, pushed = state.undesired, state.desired, state.undesired.push(look.features)
        else:
            return Outcome(reason="the score is not reliable")
        entropy = label is not None and "re" in self.options.losses
        neighbours = matches = None
        if ("u" if label is None else "d") in self.options.losses and self._banks_full_enough(state):
            neighbours = self._neighbours(look, same, other, pushed)
            # K+, the number of positives of the image's own class.
            matches = None if label is None else int((neighbours.labels == label).sum())
        if neighbours is None and not entropy:
            return Outcome(
                reason="no loss applies: the feature banks are still filling, or the chosen losses leave it out"
            )

        def loss(look: Look, augmented: torch.Tensor) -> torch.Tensor:
            """L_Re + L_D, or L_U, as far as they apply."""
            losses = []
            if entropy and label is not None:
                classifier, z = state.overlay.differentiable(look)
                scale = self.options.entropy_scale
                losses.append(reliable_entropy(z, cosines(augmented[0], classifier), label, scale))
            if neighbours is not None:
                losses.append(self._contrast(look, neighbours, label))
            return torch.stack(losses).sum()

        def settle(outcome: Outcome) -> Outcome:
            if outcome.failed:
                same.undo(pushed)
                return outcome
            return replace(outcome, matches=matches)

        return tuning.Proposal(self.optimiser, loss, settle, augmented=1 if entropy else 0)

    def _neighbours(self, look: Look, same: FeatureBank, other: FeatureBank, pushed: Pushed) -> Neighbours:
        own = same.row(pushed) if self.options.neighbours == "without_self" else None
        return nearest(look.features, same, other, self.options.k, skip_self=own)

    def _contrast(self, look: Look, neighbours: Neighbours, label: int | None) -> torch.Tensor:
        loss = contrast(
            look.features,
            neighbours,
            label=label,
            temperature=self.options.temperature,
            normaliser=self.options.normaliser,
        )
        return self.options.contrast_weight * loss

    def _banks_full_enough(self, state: RositaState) -> bool:
        """Both banks hold more than K features, so that K remain when an image is left out of its own neighbours."""
        return len(state.desired) > self.options.k and len(state.undesired) > self.options.k
