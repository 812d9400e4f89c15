"""TPT: tune the prompts so that the confident views of one image agree (Shu et al. 2022).

    p = mean of softmax(s f_v T(prompts)^T) over the tenth of the views with the lowest entropy;  loss = H(p)

`tpt` takes one AdamW step for each desired image and then discards it, so its scores are those of the frozen
classifier. `tpt_c` keeps the prompts and uses plain SGD over the whole stream. All views pass the image tower without
graph. With a CLIP model only the text tower is differentiated. MaPLe has prompts in both towers, so the selected views
pass the image tower a second time, with graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options, option
from ..core.losses import cosines, most_certain, selected_entropy
from ..core.optimisers import FirstAdamW, Optimiser, ProposedStep, Stepper, StepResult
from ..core.overlay import TrainedOverlay, encode
from ..core.types import Decision, Look, Verdict, ViewSource
from .base import GradientMethod, GradientState, MethodSummary, Proposal, TensorState, look_through
from .groups import build_overlay

# Number of views that the image tower encodes at once, to limit the memory.
BATCH = 16
# Maximum number of views of one image; all views are in memory at the same time.
VIEWS = (2, 1024)
UNDESIRED = Proposal(reason="an undesired image does not tune the prompt")


def views_option() -> int:
    """Declare the option that sets the number of views."""
    return option(64, bounds=VIEWS, about="number of views of an image, including the canonical one")


def share_option() -> float:
    """Declare the option that sets the share of selected views."""
    return option(
        0.1, above=0, at_most=1, about="share of the views, those with the lowest entropy, that enter the loss"
    )


@dataclass(frozen=True)
class TPTOptions(Options):
    """Options of `tpt`. Defaults are those of the published code."""

    lr: float = option(
        5e-3,
        paper=5e-4,
        number="D9",
        above=0,
        about="learning rate of the single AdamW step on a CLIP backbone; the original TPT code also uses 0.005",
    )
    maple_lr: float = option(
        4e-2, paper=5e-4, number="D9", above=0, about="learning rate of the single AdamW step on a MaPLe backbone"
    )
    views: int = views_option()
    share: float = share_option()


@dataclass(frozen=True)
class TPTCOptions(Options):
    """Options of `tpt_c`. Defaults are those of the published code."""

    optimiser: Literal["sgd", "adamw"] = option("sgd", about="optimiser: SGD, or AdamW with its default settings")
    lr: float = option(1e-5, above=0, about="learning rate of the optimiser")
    momentum: float = option(0.0, at_least=0, below=1, about="momentum of SGD")
    views: int = views_option()
    share: float = share_option()
    update: Literal["desired", "reliable"] = option(
        "desired",
        paper="reliable",
        number="D16",
        about="images that update the prompts: all classified as known (desired), or reliable known images only",
    )


class PromptTuning(GradientMethod):
    """Base of methods that tune prompts on the loss of the views of one image."""

    views = 64
    looks_with_graph = False

    def __init__(
        self,
        backbone: Backbone,
        classifier: torch.Tensor,
        classes: Sequence[str],
        options: TPTOptions | TPTCOptions,
    ) -> None:
        self.options, self.views, self.share = options, options.views, options.share
        self.logit_scale = backbone.logit_scale
        self.initial = build_overlay(backbone, classifier, classes, "prompts")

    def tune(self, prompts: TrainedOverlay, optimiser: Stepper) -> Proposal:
        """Propose a step on the loss of the views.

        With a CLIP model the features do not change, because only the text tower has prompts.
        """
        loss = partial(self.loss_of_views, prompts)
        return Proposal(ProposedStep(prompts, optimiser, loss, looks_again=prompts.trains_vision))

    def loss_of_views(self, prompts: TrainedOverlay, look: Look[None], augmented: torch.Tensor) -> torch.Tensor:
        """Return the loss of the most certain views, with graph.

        All views are encoded in batches without graph to select the most certain ones.
        """
        pixels, features = self._all_views(prompts, look)
        classifier = prompts.differentiable_classifier()
        with torch.no_grad():
            certain = most_certain(self.logit_scale * cosines(features, classifier), self.share)
        # A view with values that are not finite is never selected, but it must still make the loss invalid.
        return self.loss(prompts, classifier, pixels, features, certain) + 0 * features.sum()

    def loss(
        self,
        prompts: TrainedOverlay,
        classifier: torch.Tensor,
        pixels: torch.Tensor,
        features: torch.Tensor,
        certain: torch.Tensor,
    ) -> torch.Tensor:
        """Return the loss of the views [V, 3, H, W] with `features` [V, D]; `certain` are the selected views."""
        chosen = encode(prompts.vision, pixels[certain], prompts) if prompts.trains_vision else features[certain]
        return selected_entropy(self.logit_scale * cosines(chosen, classifier))

    @torch.no_grad()
    def _all_views(self, prompts: TrainedOverlay, look: Look[None]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return pixels and unit features of all views; the canonical view, which is already encoded, comes first."""
        augmented = look.views.augmented(self.views - 1)
        features = [encode(prompts.vision, batch, prompts) for batch in torch.split(augmented, BATCH)]
        return torch.cat([look.views.canonical, augmented]), torch.cat([look.features[None], *features])


class TPT(PromptTuning):
    """Take one step for each desired image, always from the initial prompts."""

    Options = TPTOptions
    summary = MethodSummary(
        "prompts, for one image at a time",
        "score bank",
        "1 forward; desired: +63 forwards, and of the text tower 2 forwards, 1 backward; "
        "MaPLe: +7 forwards, 6 backwards",
        "Shu et al. 2022 (TPT)",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: TPTOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        self.first_step = FirstAdamW(options.maple_lr if self.initial.trains_vision else options.lr)

    def start(self) -> TensorState:
        return TensorState()

    def overlay(self, state: TensorState) -> TrainedOverlay | None:
        return self.initial if self.initial.trains_vision else None

    def look(self, state: TensorState, features: torch.Tensor, views: ViewSource) -> Look[None]:
        return look_through(self.initial, features, views)

    def propose(self, state: TensorState, look: Look[None], decision: Decision) -> Proposal:
        return self.tune(self.initial, self.first_step) if decision.desired else UNDESIRED

    def answer(self, state: TensorState, look: Look[None], trained: StepResult, features: torch.Tensor) -> torch.Tensor:
        return look_through(trained.overlay, features, look.views).logits

    def commit(self, state: TensorState, look: Look[None], decision: Decision, trained: StepResult | None) -> None:
        """Store nothing: the next image starts from the initial prompts again."""


class TPTC(PromptTuning):
    """Tune prompts continuously over the whole stream."""

    Options = TPTCOptions
    summary = MethodSummary(
        "prompts",
        "prompts, score bank",
        TPT.summary.passes,
        "Shu et al. 2022 (TPT), without its resets",
    )

    options: TPTCOptions

    def optimiser(self) -> Optimiser:
        return Optimiser(self.options.optimiser, self.options.lr, self.options.momentum)

    def overlay(self, state: GradientState) -> TrainedOverlay | None:
        return state.overlay if state.overlay.trains_vision else None

    def propose(self, state: GradientState, look: Look[None], decision: Decision) -> Proposal:
        if not decision.desired:
            return UNDESIRED
        if self.options.update == "reliable" and decision.verdict is not Verdict.RELIABLE_DESIRED:
            return Proposal(reason="the score is not reliable")
        return self.tune(state.overlay, state.optimiser)
