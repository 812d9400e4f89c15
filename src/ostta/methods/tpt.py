"""TPT: tune the words before the class name until the confident views of one image agree (Shu et al. 2022).

    p = mean of softmax(s f_v T(context)^T) over the tenth of the views with the lowest entropy;  loss = H(p)

`tpt` takes one AdamW step for each desired image and then forgets it, so its scores are the frozen classifier's. `tpt_c` never
forgets: plain SGD on one context through the stream. The image tower runs without graph, once for each view; only the text tower is
differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.context import PromptedText
from ..backbones.protocol import DEFAULT_TEMPLATES, Backbone
from ..core.losses import selected_entropy
from ..core.scores import cosines, unit
from ..core.types import Decision, Error, Look, Outcome, Verdict, ViewSource
from . import tuning
from .protocol import Facts
from .zero_shot import NoState

# Views that go through the image tower at once, which bounds the memory.
BATCH = 16
# Of AdamW, where the published code leaves them at their defaults.
EPS, WEIGHT_DECAY = 1e-8, 0.01


@dataclass(frozen=True)
class TPTOptions:
    """Defaults are the published code's.

    lr: rate of the one AdamW step (D9).
    views: views of an image, the canonical one included.
    share: of the views, those with the lowest entropy, that enter the loss.
    """

    lr: float = 5e-3
    views: int = 64
    share: float = 0.1

    def __post_init__(self) -> None:
        if not self.lr > 0 or self.views < 2 or not 0 < self.share <= 1:
            raise Error(f"`lr` is above zero, `views` at least 2 and `share` above 0 and at most 1, unlike {self}.")


@dataclass(frozen=True)
class TPTCOptions(TPTOptions):
    """Defaults are the published code's.

    lr: rate of plain SGD.
    views, share: as in `tpt`.
    update: the prompt is tuned on every "desired" image (published), or on "reliable" desired ones only (paper) (D16).
    """

    lr: float = 1e-5
    update: Literal["desired", "reliable"] = "desired"


class Prompts:
    """What both methods do: cosines with a classifier, and the gradient of the loss with respect to a context."""

    views = 64
    score_scale = 1.0

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: TPTOptions
    ) -> None:
        self.text = PromptedText(backbone, classes)
        self.options = options
        self.views = options.views
        self.vision = backbone.vision
        self.logit_scale = backbone.logit_scale
        self.classifier = classifier
        with torch.no_grad():
            initial = unit(self.text.encode(self.text.initial_context))
        if not torch.allclose(initial, classifier, atol=1e-4):
            raise Error(
                f"Prompt tuning starts from the one template {DEFAULT_TEMPLATES[0]!r}, and this classifier was made from "
                "something else: leave `templates` as it is."
            )

    @torch.no_grad()
    def classify(self, context: torch.Tensor) -> torch.Tensor:
        """The classifier of a context. That of the initial one is at hand, and then scores are exactly the frozen model's."""
        if context.equal(self.text.initial_context):
            return self.classifier
        return unit(self.text.encode(context))

    @torch.no_grad()
    def seen(self, classifier: torch.Tensor, views: ViewSource) -> Look:
        features = unit(self.vision(views.canonical))[0]
        z = cosines(features, classifier)
        return Look(views, features, z, z)

    def gradient(self, context: torch.Tensor, look: Look) -> tuple[float, torch.Tensor]:
        """The loss of one image's views at `context`, and its gradient."""
        features = self._features(look)
        with torch.enable_grad():
            leaf = context.detach().clone().requires_grad_()
            logits = self.logit_scale * cosines(features, unit(self.text.encode(leaf)))
            loss = selected_entropy(logits, self.options.share)
            (gradient,) = torch.autograd.grad(loss, leaf)
        return float(loss.detach()), gradient

    @torch.no_grad()
    def _features(self, look: Look) -> torch.Tensor:
        """Unit features of all views; the canonical one, which the look has, comes first."""
        augmented = look.views.augmented(self.views - 1)
        batches = (augmented[start : start + BATCH] for start in range(0, len(augmented), BATCH))
        return torch.cat([look.features[None], *(unit(self.vision(batch)) for batch in batches)])


class TPT(Prompts):
    """One step for each desired image, from the initial prompt every time."""

    name = "tpt"
    Options = TPTOptions
    facts = Facts(
        "context vectors of the prompt, for one image at a time",
        "score bank",
        "1 forward; desired: +63 forwards, and of the text tower 2 forwards, 1 backward",
        "Shu et al. 2022 (TPT)",
    )

    def start(self) -> NoState:
        return NoState()

    def look(self, state: NoState, views: ViewSource) -> Look:
        return self.seen(self.classifier, views)

    def learn(self, state: NoState, look: Look, decision: Decision) -> Outcome:
        if not decision.desired:
            return Outcome(reason="an undesired image does not tune the prompt")
        start = self.text.initial_context
        loss, gradient = self.gradient(start, look)
        tuned = first_adamw_step(start, gradient, self.options.lr)
        if not finite(loss, tuned):
            return Outcome(reason=tuning.NOT_FINITE, failed=True)
        return Outcome(loss=loss, adapted=True, answer=lambda: cosines(look.features, self.classify(tuned)))


class TunedPrompt:
    """The context as it is now, and its classifier, which follows from it."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self.context = prompts.text.initial_context
        self.classifier = prompts.classifier

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"context": self.context.clone()}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        stored = tensors["context"]
        if stored.shape != self.context.shape:
            raise Error(
                f"The stored context has shape {tuple(stored.shape)}, this one needs {tuple(self.context.shape)}."
            )
        self.context, self.classifier = stored.clone(), self._prompts.classify(stored)


class TPTC(Prompts):
    """One context that is tuned through the whole stream."""

    name = "tpt_c"
    Options = TPTCOptions
    facts = Facts(
        "context vectors of the prompt",
        "context vectors, score bank",
        "1 forward; desired: +63 forwards, and of the text tower 2 forwards, 1 backward",
        "Shu et al. 2022 (TPT), without its resets",
    )
    options: TPTCOptions

    def start(self) -> TunedPrompt:
        return TunedPrompt(self)

    def look(self, state: TunedPrompt, views: ViewSource) -> Look:
        return self.seen(state.classifier, views)

    def learn(self, state: TunedPrompt, look: Look, decision: Decision) -> Outcome:
        if not decision.desired:
            return Outcome(reason="an undesired image does not tune the prompt")
        if self.options.update == "reliable" and decision.verdict is not Verdict.RELIABLE_DESIRED:
            return Outcome(reason="the score is not reliable")
        loss, gradient = self.gradient(state.context, look)
        moved = state.context - self.options.lr * gradient
        classifier = self.classify(moved)
        if not finite(loss, classifier):
            return Outcome(reason=tuning.NOT_FINITE, failed=True)
        state.context, state.classifier = moved, classifier
        return Outcome(loss=loss, adapted=True, answer=lambda: cosines(look.features, classifier))


def first_adamw_step(start: torch.Tensor, gradient: torch.Tensor, lr: float) -> torch.Tensor:
    """Where AdamW goes first: its moments are still the gradient itself, so the step is known in closed form."""
    return start * (1 - lr * WEIGHT_DECAY) - lr * gradient / (gradient.abs() + EPS)


def finite(loss: float, tensor: torch.Tensor) -> bool:
    """Whether the loss and all of the tensor are."""
    return bool(torch.isfinite(tensor.sum() + loss))
