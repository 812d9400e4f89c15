"""DPE: evolving text and image prototypes, with residuals that are tuned for each image and then discarded.

For each image, residuals start at zero and take one AdamW step on the entropy of the final logits; the logits are then
computed again with the residuals. If the result is confident, the tuned text prototypes are averaged into the global
ones. The first AdamW step from zero has the closed form R = -lr g / (|g| + eps), so no optimiser is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from ..backbones.protocol import Backbone
from ..config.declare import Options, option
from ..core.banks import FeatureMemory, named
from ..core.checks import UNIT_TOLERANCE, require_intact, require_names, split, stored, stored_count
from ..core.losses import cosines, entropy, mixed_unit_entropy, unit
from ..core.optimisers import StepResult
from ..core.types import Decision, Look, ViewSource
from .base import FrozenMethod, MethodSummary, Proposal
from .cache import NO_PLACE, CacheWeights, ClassCache, ScoreOf, cache_factor, cache_weights_option, score_of_option


@dataclass(frozen=True)
class DPEOptions(Options):
    """Options of `dpe`. Defaults follow the published code except its gate; no original configuration has them."""

    shots: int = option(3, bounds=(1, 10_000), about="number of cached features per class")
    alpha: float = option(2.0, number="D14", about="weight of the cache; no original configuration uses 2")
    beta: float = option(
        5.0, number="D14", about="sharpness of the cache; the original implementation varies it by data set"
    )
    cache_weights: CacheWeights = cache_weights_option()
    lr: float = option(6e-4, above=0, about="learning rate of the single AdamW step on the residuals")
    eps: float = option(
        1e-3, above=0, about="constant added to the denominator of the AdamW step for numerical stability"
    )
    align: float = option(0.0, number="D14", about="weight of the alignment loss; the published code disables it")
    temperature: float = option(0.01, above=0, about="temperature of the alignment loss")
    confident: float = option(
        0.1,
        about="largest normalised entropy at which the prototypes are updated: entropy in nats divided "
        "by the log2 chosen by `gate`",
    )
    gate: Literal["classes", "reference"] = option(
        "classes",
        number="D13",
        about="divisor of the entropy in `confident`: log2 of the number of classes; `reference` "
        "reproduces an error of the published code",
        bug="the entropy of the gate is divided by log2 of the feature width instead of the number of classes",
    )
    score_of: ScoreOf = score_of_option()

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        return {"cache/features": (classes, self.shots, width)}


class DPEState:
    """Global text prototypes [C, D], the number of their updates, and the cache of image features."""

    def __init__(self, classifier: torch.Tensor, shots: int) -> None:
        self.prototypes = classifier.clone()
        self.evolved = 0
        self.cache = ClassCache(classifier.shape[0], shots, classifier.shape[1], classifier.device)

    def restarted(self, fresh: DPEState) -> DPEState:
        """Return the initial prototypes with the cache of this state, whose features come from the frozen tower."""
        fresh.cache = self.cache
        return fresh

    def memories(self) -> dict[str, FeatureMemory]:
        return {"cache": self.cache}

    def tensors(self) -> dict[str, torch.Tensor]:
        text = {"prototypes": self.prototypes.clone(), "evolved": torch.tensor(self.evolved)}
        return named(text=text, cache=self.cache.tensors())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        text, cache = split(tensors, "text", "cache")
        require_names(text, ("prototypes", "evolved"))
        prototypes = stored(text, "prototypes", torch.float32, self.prototypes.shape)
        evolved = stored_count(text, "evolved")
        # Prototypes are means of unit rows: their length is at most one. A length of zero has no direction.
        lengths = prototypes.norm(dim=1)
        valid = (lengths > 0) & (lengths < 1 + UNIT_TOLERANCE)
        require_intact(valid.all(), "matrix of text prototypes", "each row must have a length above 0 and at most 1")
        self.cache.load(cache)
        self.prototypes.copy_(prototypes)
        self.evolved = evolved


@dataclass(frozen=True, slots=True)
class DPEPlan:
    """Result of a look: the position of the image in the cache, and the text prototypes tuned on it."""

    label: int
    entropy: float
    place: int | None
    tuned: torch.Tensor
    loss: float
    confident: bool


class DPE(FrozenMethod):
    """Logits of evolving prototypes, with separate residuals for each image."""

    Options = DPEOptions
    summary = MethodSummary(
        "text and image prototypes (residuals, for one image at a time)",
        "text prototypes, 3 features a class, score bank",
        "1 forward",
        "Zhang et al. 2024 (DPE)",
    )
    looks_in_half = True
    options: DPEOptions

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: DPEOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        self.alpha = cache_factor(options.cache_weights, self.logit_scale) * options.alpha
        self.largest_score = 1.0 if options.score_of == "cosine" else self.logit_scale

    def start(self) -> DPEState:
        return DPEState(self.classifier, self.options.shots)

    def look(self, state: DPEState, features: torch.Tensor, views: ViewSource) -> Look[DPEPlan]:
        with torch.no_grad():
            first = self.logit_scale * cosines(features, unit(state.prototypes))
            label, spread = int(first.argmax()), mixed_unit_entropy(first)
            place = state.cache.place(label, spread)
            classes, means = self._means(state, features, label, place)
        residuals = [torch.zeros_like(state.prototypes), torch.zeros_like(means)]
        with torch.enable_grad():
            for residual in residuals:
                residual.requires_grad_()
            final, text, image = self._final(features, state.prototypes, means, classes, residuals)
            loss = entropy(final)
            if self.options.align > 0:
                loss = loss + self.options.align * self._alignment(text[classes], image)
            gradients = torch.autograd.grad(loss, residuals)
        with torch.no_grad():
            moved = [-self.options.lr * g / (g.abs() + self.options.eps) for g in gradients]
            final, text, _ = self._final(features, state.prototypes, means, classes, moved)
            count = len(self.classifier) if self.options.gate == "classes" else self.classifier.shape[1]
            confident = count > 1 and float(entropy(final)) / math.log2(count) < self.options.confident
            z = cosines(features, self.classifier)
        plan = DPEPlan(label, spread, place, text, float(loss.detach()), confident)
        scores = z if self.options.score_of == "cosine" else None
        return Look(views, features, z, final, plan, scores, self.logit_scale)

    def propose(self, state: DPEState, look: Look[DPEPlan], decision: Decision) -> Proposal:
        adapted = look.plan.confident or look.plan.place is not None
        return Proposal(loss=look.plan.loss, adapted=adapted, reason=None if adapted else NO_PLACE)

    def commit(self, state: DPEState, look: Look[DPEPlan], decision: Decision, trained: StepResult | None) -> None:
        plan = look.plan
        if plan.place is not None:
            state.cache.put(plan.label, plan.place, look.features, plan.entropy)
        if plan.confident:
            state.evolved += 1
            share = 1 / (state.evolved + 1)
            state.prototypes.mul_(1 - share).add_(plan.tuned, alpha=share)

    def _means(
        self, state: DPEState, features: torch.Tensor, label: int, place: int | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the classes with cached features and their means, including the candidate at its position."""
        stored, filled = state.cache.features, state.cache.filled
        if place is not None:
            stored = stored.clone()
            stored[label, place] = features
            filled[label, place] = True
        classes = filled.any(1).nonzero().flatten()
        count = filled[classes].sum(1, keepdim=True)
        return classes, (stored[classes] * filled[classes][..., None]).sum(1) / count

    def _final(
        self,
        features: torch.Tensor,
        prototypes: torch.Tensor,
        means: torch.Tensor,
        classes: torch.Tensor,
        residuals: list[torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        text, image = unit(prototypes + residuals[0]), unit(means + residuals[1])
        cached = self.alpha * torch.exp(-self.options.beta * (1 - image @ features))
        return (self.logit_scale * (text @ features)).index_add(0, classes, cached), text, image

    def _alignment(self, text: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        logits = image @ text.T / self.options.temperature
        target = torch.arange(len(logits), device=logits.device)
        return (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2
