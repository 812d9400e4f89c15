"""OGA: Gaussian class models from a cache of confident features, combined with the zero-shot prior (Fuchs et al. 2025).

    log p(c | f) = s z_c + tau (m_c.P f - m_c.P m_c / 2) + constant

The cache keeps up to 8 features per class, those with the lowest zero-shot entropy. m_c is the mean of the cached
features of class c, or its text embedding while fewer than two are cached. P is the inverse of one covariance for all
classes, estimated from the n deviations x of the cached features from their m_c, with scatter S = sum (x - mean x)(x -
mean x)^T:

    P = D I                             until a class has three features
    P = D (S + tr(S) / (n - 1) I)^-1    for n <= 4 D: empirical Bayes ridge estimate
    P = (n - 1) S^+                     for n > 4 D

The published code processes batches and adds a batch to the cache before it classifies the batch. Here an image is
classified first and enters the cache afterwards, if its verdict permits. The published code divides the sum of the
cached features of a class by 8 even if fewer are cached; `mean_over="stored"` divides by the number of cached features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.protocol import Backbone
from ..config.declare import option
from ..core.banks import FeatureMemory, named
from ..core.checks import split
from ..core.losses import cosines, entropy
from ..core.optimisers import StepResult
from ..core.types import Decision, Look, ViewSource
from ..methods import MethodSummary, Proposal
from ..methods.cache import NO_PLACE, CacheWeights, ClassCache, cache_factor, cache_weights_option
from .closed_set import ClosedSet, ClosedSetOptions

# Features per class from which the mean of the class is used, and from which the covariance is estimated.
FOR_A_MEAN, FOR_A_COVARIANCE = 2, 3
# Mean squared deviation below which the cached features are considered duplicates and no covariance is estimated.
MIN_VARIANCE = 1e-4


@dataclass(frozen=True)
class OGAOptions(ClosedSetOptions):
    """Options of `oga`. Defaults are those of the published code."""

    shots: int = option(8, bounds=(1, 10_000), about="number of cached features per class")
    tau: float = option(
        0.05, bounds=(0, 1e6), about="weight of the Gaussian log-likelihoods relative to the zero-shot logits"
    )
    mean_over: Literal["shots", "stored"] = option(
        "shots",
        about="divisor of the sum of a class's features: `shots` as published, or the number of stored features",
    )
    cache_weights: CacheWeights = cache_weights_option()

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        return {"cache/features": (classes, self.shots, width)}


class OGAState:
    """The cache, and the equivalent linear classifier of its Gaussians: weights [C, D] and biases [C]."""

    def __init__(self, text: torch.Tensor, options: OGAOptions) -> None:
        self._text, self._options = text, options
        self.cache = ClassCache(text.shape[0], options.shots, text.shape[1], text.device)
        self.fit()

    def fit(self) -> None:
        """Recompute the classifier from the cache."""
        self.weights, self.biases = gaussian_classifier(self.cache, self._text, self._options.mean_over)

    def memories(self) -> dict[str, FeatureMemory]:
        return {"cache": self.cache}

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(cache=self.cache.tensors())

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        (cache,) = split(tensors, "cache")
        self.cache.load(cache)
        self.fit()


@dataclass(frozen=True, slots=True)
class OGAPlan:
    """Cache entry of an image: its zero-shot class, its entropy, and its position, or None if it is too uncertain."""

    label: int
    entropy: float
    place: int | None


class OGA(ClosedSet):
    """Zero-shot logits plus Gaussian log-likelihoods; no gradient step is taken."""

    options: OGAOptions
    Options = OGAOptions
    summary = MethodSummary("nothing", "8 features a class, score bank", "1 forward", "Fuchs et al. 2025 (OGA)")

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: OGAOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        self.tau = cache_factor(options.cache_weights, self.logit_scale) * options.tau

    def start(self) -> OGAState:
        return OGAState(self.classifier, self.options)

    @torch.no_grad()
    def look(self, state: OGAState, features: torch.Tensor, views: ViewSource) -> Look[OGAPlan]:
        z = cosines(features, self.classifier)
        zero_shot = self.logit_scale * z
        label, uncertainty = int(zero_shot.argmax()), float(entropy(zero_shot))
        plan = OGAPlan(label, uncertainty, state.cache.place(label, uncertainty))
        likelihoods = self.tau * (state.weights @ features + state.biases)
        # The maximum is subtracted first, because likelihoods are large if the cached features are close together.
        logits = torch.log_softmax(zero_shot + (likelihoods - likelihoods.max()), dim=-1)
        return Look(views, features, z, logits, plan, self.options.scores(z, logits), self.logit_scale)

    def propose(self, state: OGAState, look: Look[OGAPlan], decision: Decision) -> Proposal:
        return Proposal(reason=NO_PLACE) if look.plan.place is None else super().propose(state, look, decision)

    @torch.no_grad()
    def commit(self, state: OGAState, look: Look[OGAPlan], decision: Decision, trained: StepResult | None) -> None:
        plan = look.plan
        if plan.place is not None and self.options.learns(decision):
            state.cache.put(plan.label, plan.place, look.features, plan.entropy)
            state.fit()


def gaussian_classifier(cache: ClassCache, text: torch.Tensor, mean_over: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights P m_c [C, D] and biases -m_c.P m_c / 2 [C] of Gaussians with a shared covariance."""
    counts = cache.filled.sum(1)
    divisors = cache.features.shape[1] if mean_over == "shots" else counts.clamp_min(1)[:, None]
    means = torch.where((counts >= FOR_A_MEAN)[:, None], cache.features.sum(1) / divisors, text)
    weights = _precision_times(cache, means) if int(counts.max()) >= FOR_A_COVARIANCE else text.shape[1] * means
    return weights, -(weights * means).sum(1) / 2


def _precision_times(cache: ClassCache, means: torch.Tensor) -> torch.Tensor:
    """Return the rows P m_c, with P estimated from the deviations of the cached features from their class means."""
    width = means.shape[1]
    deviations = (cache.features - means[:, None])[cache.filled]
    deviations = deviations - deviations.mean(0)
    n, variance = len(deviations), float(deviations.square().sum()) / (len(deviations) - 1)
    if variance < MIN_VARIANCE:
        return width * means
    if n > 4 * width:
        precision: torch.Tensor = torch.linalg.pinv(deviations.T @ deviations / (n - 1), hermitian=True)
        return means @ precision
    if n >= width:
        return width * _solve(deviations.T @ deviations, variance, means.T).T
    # Woodbury identity: a system of n equations instead of D.
    explained = _solve(deviations @ deviations.T, variance, deviations @ means.T).T @ deviations
    return (width / variance) * (means - explained)


def _solve(scatter: torch.Tensor, ridge: float, right: torch.Tensor) -> torch.Tensor:
    """Return (scatter + ridge I)^-1 right."""
    # The ridge is tr(scatter) / (n - 1), so the condition number is at most n and the decomposition exists in single
    # precision.
    scatter.diagonal().add_(ridge)
    return torch.cholesky_solve(right, torch.linalg.cholesky(scatter))
