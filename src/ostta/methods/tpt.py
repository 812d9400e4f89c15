"""TPT: tune the prompts until the confident views of one image agree (Shu et al. 2022).

    p = mean of softmax(s f_v T(prompts)^T) over the tenth of the views with the lowest entropy;  loss = H(p)

`tpt` takes one AdamW step for each desired image and then forgets it, so its scores are the frozen classifier's. `tpt_c` never
forgets: plain SGD through the stream. All views pass the image tower without graph. With a CLIP only the text tower is
differentiated; with MaPLe, whose prompts are in both towers, the selected views pass the image tower a second time, with graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.protocol import Backbone
from ..core.checks import between, split
from ..core.losses import most_certain, selected_entropy
from ..core.memory import named
from ..core.optimisers import Optimiser, first_adamw_step
from ..core.scores import cosines
from ..core.types import Decision, Error, Look, Outcome, Verdict, ViewSource
from . import tuning
from .protocol import Facts
from .zero_shot import NoState

# Views that go through the image tower at once, which bounds the memory.
BATCH = 16
# How many views of one image there may be; all of them are held at once.
VIEWS = (2, 1024)


@dataclass(frozen=True)
class TPTOptions:
    """Defaults are the published code's.

    lr, maple_lr: rate of the one AdamW step on a CLIP's prompts, and on MaPLe's (D9).
    views: views of an image, the canonical one included.
    share: of the views, those with the lowest entropy, that enter the loss.
    """

    lr: float = 5e-3
    maple_lr: float = 4e-2
    views: int = 64
    share: float = 0.1

    def __post_init__(self) -> None:
        if not self.lr > 0 or not self.maple_lr > 0 or not 0 < self.share <= 1:
            raise Error(f"`lr` and `maple_lr` are above zero, and `share` is above 0 and at most 1, unlike {self}.")
        between(self, views=VIEWS)


@dataclass(frozen=True)
class TPTCOptions:
    """Defaults are the published code's.

    optimiser, lr: "sgd" (published), or "adamw" with its defaults.
    momentum: of SGD (D17).
    views, share: as in `tpt`.
    update: the prompts are tuned on every "desired" image (published), or on "reliable" desired ones only (paper) (D16).
    """

    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: float = 1e-5
    momentum: float = 0.0
    views: int = 64
    share: float = 0.1
    update: Literal["desired", "reliable"] = "desired"

    def __post_init__(self) -> None:
        if not self.lr > 0 or not 0 <= self.momentum < 1 or not 0 < self.share <= 1:
            raise Error(
                f"`lr` is above zero, `momentum` from 0 to below 1 and `share` above 0 and at most 1, unlike {self}."
            )
        between(self, views=VIEWS)


class Prompts:
    """What all of them do: look under an overlay over the prompts, and differentiate the loss of one image's views."""

    views = 64
    score_scale = 1.0
    scores_in_half = False

    def __init__(
        self,
        backbone: Backbone,
        classifier: torch.Tensor,
        classes: Sequence[str],
        options: TPTOptions | TPTCOptions,
    ) -> None:
        self.views, self.share = options.views, options.share
        self.logit_scale = backbone.logit_scale
        self.initial = tuning.Tuned(backbone, classifier, classes, "prompts")

    def gradients(self, prompts: tuning.Tuned, look: Look) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The loss of one image's views at `prompts`, and its gradients."""
        pixels, features = self._all_views(prompts, look)
        with torch.enable_grad():
            classifier = prompts.differentiable_classifier()
            with torch.no_grad():
                certain = most_certain(self.logit_scale * cosines(features, classifier), self.share)
            loss = self.loss(prompts, classifier, pixels, features, certain)
            # A view that is not finite is never among the certain ones; it spoils the image all the same.
            return loss.detach() + 0 * features.sum(), torch.autograd.grad(loss, prompts.parameters())

    def loss(
        self,
        prompts: tuning.Tuned,
        classifier: torch.Tensor,
        pixels: torch.Tensor,
        features: torch.Tensor,
        certain: torch.Tensor,
    ) -> torch.Tensor:
        """Of the views [V, 3, H, W] with `features` [V, D], of which those numbered `certain` were selected."""
        chosen = prompts.features(pixels[certain]) if prompts.trains_vision else features[certain]
        return selected_entropy(self.logit_scale * cosines(chosen, classifier))

    @torch.no_grad()
    def _all_views(self, prompts: tuning.Tuned, look: Look) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels and unit features of all views; the canonical one, which the look has, comes first."""
        augmented = look.views.augmented(self.views - 1)
        features = [prompts.features(batch) for batch in torch.split(augmented, BATCH)]
        return torch.cat([look.views.canonical, augmented]), torch.cat([look.features[None], *features])


class TPT(Prompts):
    """One step for each desired image, from the initial prompts every time."""

    name = "tpt"
    Options = TPTOptions
    facts = Facts(
        "prompts, for one image at a time",
        "score bank",
        "1 forward; desired: +63 forwards, and of the text tower 2 forwards, 1 backward; MaPLe: +7 forwards, 6 backwards",
        "Shu et al. 2022 (TPT)",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: TPTOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        self.lr = options.maple_lr if self.initial.trains_vision else options.lr

    def start(self) -> NoState:
        return NoState()

    def overlay(self, state: NoState) -> tuning.Tuned | None:
        return self.initial if self.initial.trains_vision else None

    @torch.no_grad()
    def look(self, state: NoState, views: ViewSource, features: torch.Tensor | None = None) -> Look:
        return tuning.look(self.initial, views, features)

    def learn(self, state: NoState, look: Look, decision: Decision) -> Outcome:
        if not decision.desired:
            return Outcome(reason="an undesired image does not tune the prompt")
        loss, gradients = self.gradients(self.initial, look)
        if not tuning.finite(loss, gradients):
            return Outcome(reason=tuning.NOT_FINITE, failed=True)
        start = {name: tensor.detach() for name, tensor in self.initial.tensors.items()}
        tuned = self.initial.moved(
            {
                name: first_adamw_step(value, g, self.lr)
                for (name, value), g in zip(start.items(), gradients, strict=True)
            }
        )

        def answer() -> torch.Tensor:
            return answered(tuned, look)

        return Outcome(loss=float(loss), adapted=True, answer=answer)


class TunedPrompts:
    """The prompts as they are now, and the optimiser's memory."""

    def __init__(self, overlay: tuning.Tuned, optimiser: Optimiser) -> None:
        self.overlay, self.optimiser = overlay, optimiser

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(overlay=self.overlay.snapshot(), optimiser=self.optimiser.tensors())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, optimiser = split(tensors, "overlay", "optimiser")
        self.optimiser.load(optimiser, self.overlay.parameters())
        self.overlay.load(overlay)


class TPTC(Prompts):
    """Prompts that are tuned through the whole stream."""

    name = "tpt_c"
    Options = TPTCOptions
    facts = Facts(
        "prompts",
        "prompts, score bank",
        TPT.facts.passes,
        "Shu et al. 2022 (TPT), without its resets",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: TPTCOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        self.options = options

    def start(self) -> TunedPrompts:
        fresh = self.initial.moved(
            {name: tensor.detach().clone().requires_grad_() for name, tensor in self.initial.tensors.items()}
        )
        fresh.reset()
        return TunedPrompts(fresh, Optimiser(self.options.optimiser, self.options.lr, self.options.momentum))

    def overlay(self, state: TunedPrompts) -> tuning.Tuned | None:
        return state.overlay if state.overlay.trains_vision else None

    @torch.no_grad()
    def look(self, state: TunedPrompts, views: ViewSource, features: torch.Tensor | None = None) -> Look:
        return tuning.look(state.overlay, views, features)

    def learn(self, state: TunedPrompts, look: Look, decision: Decision) -> Outcome:
        if not decision.desired:
            return Outcome(reason="an undesired image does not tune the prompt")
        if self.options.update == "reliable" and decision.verdict is not Verdict.RELIABLE_DESIRED:
            return Outcome(reason="the score is not reliable")
        loss, gradients = self.gradients(state.overlay, look)
        if not tuning.finite(loss, gradients):
            return Outcome(reason=tuning.NOT_FINITE, failed=True)
        state.optimiser.move(state.overlay.parameters(), gradients)
        state.overlay.changed()
        return Outcome(loss=float(loss), adapted=True, answer=lambda: answered(state.overlay, look))


@torch.no_grad()
def answered(prompts: tuning.Tuned, look: Look) -> torch.Tensor:
    """The logits after a step; the image is encoded again only where its tower has prompts."""
    if prompts.trains_vision:
        return tuning.look(prompts, look.views).logits
    return cosines(look.features, prompts.classifier)
