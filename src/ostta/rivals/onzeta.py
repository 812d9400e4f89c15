"""OnZeta: labels balanced by dual variables, and a second classifier learned from them (Qian and Hu 2024).

For the t-th image that is learned from, with its unit feature f, C classes, and the second classifier's temperature T:

    p = softmax(s z + rho)                               labels from the text, balanced by the dual variables rho >= 0
    q = softmax(W f / T)                                 labels from the second classifier W, which starts at the text
    answer = b_t q + (1 - b_t) p                         b_t = 0.8 sqrt(min(1, t / (50 C)))
    rho <- max(0, rho - 20 / sqrt(t) (p - 1 / C))        a class that receives less than its share is raised
    W <- unit rows of W - 0.5 / (T sqrt(t)) (q - p) f^T  gradient step of the cross-entropy from p to q

The published weight b_t grows with t / N, where N is the length of the stream. An endless stream has no length, so here
b_t depends only on the count: it grows until the method has learned from 50 images per class. On the validation set of
ImageNet, with 50 images per class, this equals the published weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..backbones.protocol import Backbone
from ..config.declare import option
from ..core.banks import FeatureMemory
from ..core.checks import require_names, require_unit, stored, stored_count
from ..core.losses import cosines, unit
from ..core.optimisers import StepResult
from ..core.types import Decision, Look, ViewSource
from ..methods import MethodSummary
from ..methods.cache import CacheWeights, cache_factor
from .closed_set import ClosedSet, ClosedSetOptions


@dataclass(frozen=True)
class OnZetaOptions(ClosedSetOptions):
    """Options of `onzeta`. Defaults are those of the published code.

    The text temperature, published as 0.01, is that of the backbone: 1 / logit scale.
    """

    vision_temperature: float = option(0.04, bounds=(1e-6, 1e6), about="temperature of the second classifier")
    vision_rate: float = option(0.5, bounds=(0, 1e6), about="step size of the second classifier, divided by sqrt(t)")
    vision_weight: float = option(0.8, bounds=(0, 1), about="largest weight of the second classifier in the prediction")
    ramp: int = option(
        50,
        bounds=(1, 10**9),
        about="images per class after which the second classifier has its largest weight; the published code uses the "
        "length of the stream",
    )
    balance_rate: float = option(20.0, bounds=(0, 1e6), about="step size of the dual variables, divided by sqrt(t)")
    balance: float = option(
        1.0, bounds=(0, 1), about="smallest share of images per class, relative to the uniform distribution"
    )
    constants: CacheWeights = option(
        "published",
        about="`balance_rate` and `vision_temperature`: as published for a logit scale of 100, or "
        "scaled to the logit scale of the backbone",
    )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        return {"classifier": (classes, width)}


class OnZetaState:
    """The dual variables [C], the second classifier [C, D], and the number of images that the method learned from."""

    def __init__(self, text: torch.Tensor) -> None:
        self.duals = text.new_zeros(len(text))
        self.classifier = text.clone()
        self.images = 0

    def memories(self) -> dict[str, FeatureMemory]:
        return {}

    def tensors(self) -> dict[str, torch.Tensor]:
        count = torch.tensor(self.images)
        return {"duals": self.duals.clone(), "classifier": self.classifier.clone(), "images": count}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("duals", "classifier", "images"))
        duals = stored(tensors, "duals", torch.float32, self.duals.shape, 0)
        classifier = stored(tensors, "classifier", torch.float32, self.classifier.shape)
        images = stored_count(tensors, "images")
        require_unit(classifier, "classifier")
        self.duals.copy_(duals)
        self.classifier.copy_(classifier)
        self.images = images


@dataclass(frozen=True, slots=True)
class OnZetaPlan:
    """The two label distributions of the image: p from the text embeddings, q from the second classifier."""

    text: torch.Tensor
    vision: torch.Tensor


class OnZeta(ClosedSet):
    """Balanced text labels, mixed with the labels of a classifier that learns from them in closed form."""

    options: OnZetaOptions
    Options = OnZetaOptions
    summary = MethodSummary(
        "a second classifier, in closed form",
        "dual variables and a second classifier, score bank",
        "1 forward",
        "Qian and Hu 2024 (OnZeta)",
    )

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: OnZetaOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        factor = cache_factor(options.constants, self.logit_scale)
        self.balance_rate, self.temperature = factor * options.balance_rate, options.vision_temperature / factor

    def start(self) -> OnZetaState:
        return OnZetaState(self.classifier)

    @torch.no_grad()
    def look(self, state: OnZetaState, features: torch.Tensor, views: ViewSource) -> Look[OnZetaPlan]:
        z = cosines(features, self.classifier)
        text = torch.log_softmax(self.logit_scale * z + state.duals, dim=-1)
        vision = torch.log_softmax(cosines(features, state.classifier) / self.temperature, dim=-1)
        weight = self.options.vision_weight * math.sqrt(min(1.0, (state.images + 1) / (self.options.ramp * len(z))))
        # In the log domain, so that no probability of the answer is rounded to zero.
        logits = torch.logaddexp(vision + _log(weight), text + _log(1 - weight))
        plan = OnZetaPlan(text.exp(), vision.exp())
        return Look(views, features, z, logits, plan, self.options.scores(z, logits), self.logit_scale)

    @torch.no_grad()
    def commit(
        self, state: OnZetaState, look: Look[OnZetaPlan], decision: Decision, trained: StepResult | None
    ) -> None:
        if not self.options.learns(decision):
            return
        plan, options = look.plan, self.options
        state.images += 1
        slower = math.sqrt(state.images)
        share = options.balance / len(plan.text)
        state.duals = (state.duals - self.balance_rate / slower * (plan.text - share)).clamp_min(0)
        rate = options.vision_rate / (self.temperature * slower)
        state.classifier = unit(state.classifier - rate * torch.outer(plan.vision - plan.text, look.features))


def _log(weight: float) -> float:
    return math.log(weight) if weight else -math.inf
