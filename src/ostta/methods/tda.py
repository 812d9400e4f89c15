"""TDA: correct the frozen logits by caches of confident features per class; nothing is trained.

    final = l + a+ sum_i exp(-b+ (1 - f.k_i)) onehot(y_i) - a- sum_j exp(-b- (1 - f.k_j)) [low < p_j < high]

Both caches include the image itself when they are used, so a look computes with the positions the image would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options, option
from ..core.banks import FeatureMemory, named
from ..core.checks import require_room, split, stored
from ..core.losses import cosines, mixed_unit_entropy
from ..core.optimisers import StepResult
from ..core.types import Decision, Error, Look, ViewSource
from .base import FrozenMethod, MethodSummary, Proposal
from .cache import NO_PLACE, CacheWeights, ClassCache, ScoreOf, cache_factor, cache_weights_option, score_of_option


@dataclass(frozen=True)
class TDAOptions(Options):
    """Options of `tda`. Defaults are those of the published code; the original implementation varies by data set."""

    shots: int = option(3, bounds=(1, 10_000), about="number of features per class in the positive cache")
    alpha: float = option(
        1.0, number="D15", about="weight of the positive cache; the original implementation varies it by data set"
    )
    beta: float = option(
        8.0, number="D15", about="sharpness of the positive cache; the original implementation varies it by data set"
    )
    negative_shots: int = option(
        2, number="D12", bounds=(0, 10_000), about="number of features per class in the negative cache; 0 disables it"
    )
    negative_alpha: float = option(0.117, about="weight of the negative cache")
    negative_beta: float = option(1.0, about="sharpness of the negative cache")
    cache_weights: CacheWeights = cache_weights_option()
    entropy_window: tuple[float, ...] = option(
        (0.2, 1.0),
        number="D15",
        about="range of normalised entropies of images that enter the negative cache; the upper bound "
        "of the original implementation is 0.5",
    )
    mask_window: tuple[float, ...] = option(
        (0.03, 1.0),
        about="range of class probabilities for which an entry of the negative cache counts against the class",
    )
    insert: Literal["all", "desired"] = option(
        "all",
        paper="desired",
        number="D12",
        about="images that enter the caches: all, or only those classified as known (desired)",
    )
    score_of: ScoreOf = score_of_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("entropy_window", "mask_window"):
            window = getattr(self, name)
            if len(window) != 2 or window[0] > window[1]:
                raise Error(f"`{name}` must be a lower and an upper bound, not {window}.", code="option-invalid")

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        shapes: dict[str, tuple[int, ...]] = {"positive/features": (classes, self.shots, width)}
        if self.negative_shots:
            shapes["negative/features"] = (classes, self.negative_shots, width)
            shapes["negative/numbers_against"] = (classes, self.negative_shots, self.most_against(classes))
        return shapes

    def most_against(self, classes: int) -> int:
        """Return the maximum number of classes with a probability above the lower bound of `mask_window`."""
        low = self.mask_window[0]
        return min(classes, int(1 / low) + 1) if low * classes > 1 else classes


class TDAState:
    """The two caches, and for each negative entry the numbers of the classes that it counts against.

    Few classes can have a probability above the lower bound of the window, so storage is reserved only for that many;
    with storage for all classes, memory and time would grow with the square of the number of classes. An unused
    position holds the number of classes, which is not a valid class.
    """

    def __init__(self, classes: int, width: int, options: TDAOptions, device: torch.device | None = None) -> None:
        negative = options.negative_shots
        self.positive = ClassCache(classes, options.shots, width, device)
        self.negative = ClassCache(classes, negative, width, device) if negative else None
        shape = (classes, negative, options.most_against(classes))
        require_room("The table of classes in a negative cache", shape)
        self.against = torch.full(shape, classes, dtype=torch.int32, device=device)

    def memories(self) -> dict[str, FeatureMemory]:
        caches = {"positive": self.positive, "negative": self.negative}
        return {name: cache for name, cache in caches.items() if cache is not None}

    def tensors(self) -> dict[str, torch.Tensor]:
        negative = {} if self.negative is None else {**self.negative.tensors(), "numbers_against": self.against.clone()}
        return named(positive=self.positive.tensors(), negative=negative)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        if self.negative is None:
            (positive,) = split(tensors, "positive")
        else:
            positive, negative = split(tensors, "positive", "negative")
            against = stored(negative, "numbers_against", torch.int32, self.against.shape, 0, len(self.against))
            del negative["numbers_against"]
            self.negative.load(negative)
            self.against.copy_(against)
        self.positive.load(positive)


@dataclass(frozen=True, slots=True)
class TDAPlan:
    """Cache entry of an image: its class, its entropy, and its positions in the caches (None if it does not enter)."""

    label: int
    entropy: float
    positive: int | None
    negative: int | None
    against: torch.Tensor


class TDA(FrozenMethod):
    """Frozen logits, corrected by the caches; nothing is trained."""

    Options = TDAOptions
    summary = MethodSummary("nothing", "3 + 2 features a class, score bank", "1 forward", "Karmanov et al. 2024 (TDA)")
    looks_in_half = True
    options: TDAOptions

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: TDAOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        # Scores are scaled logits: with CLIP's scale of 100, the grid of the identifier is 0, 1, ..., 99 (D29).
        factor = cache_factor(options.cache_weights, self.logit_scale)
        self.alpha, self.negative_alpha = factor * options.alpha, factor * options.negative_alpha
        self.largest_score = 1.0 if options.score_of == "cosine" else self.logit_scale

    def start(self) -> TDAState:
        classes, width = self.classifier.shape
        return TDAState(classes, width, self.options, self.classifier.device)

    @torch.no_grad()
    def look(self, state: TDAState, features: torch.Tensor, views: ViewSource) -> Look[TDAPlan]:
        z = cosines(features, self.classifier)
        logits = self.logit_scale * z
        plan = self._plan(state, logits)
        similar, filled = state.positive.similarities(features, plan.label, plan.positive)
        final = logits + self.alpha * (_weights(similar, self.options.beta) * filled).sum(1)
        if state.negative is not None:
            similar, filled = state.negative.similarities(features, plan.label, plan.negative)
            weights = _weights(similar, self.options.negative_beta) * filled
            final = final - self.negative_alpha * _weights_against(state, weights, plan)
        scores = z if self.options.score_of == "cosine" else None
        return Look(views, features, z, final, plan, scores, self.logit_scale)

    def propose(self, state: TDAState, look: Look[TDAPlan], decision: Decision) -> Proposal:
        if not self._enters(decision):
            return Proposal(reason="an undesired image stays out of the caches")
        if look.plan.positive is None and look.plan.negative is None:
            return Proposal(reason=NO_PLACE)
        return Proposal(adapted=True)

    def commit(self, state: TDAState, look: Look[TDAPlan], decision: Decision, trained: StepResult | None) -> None:
        plan = look.plan
        if not self._enters(decision):
            return
        if plan.positive is not None:
            state.positive.put(plan.label, plan.positive, look.features, plan.entropy)
        if plan.negative is not None and state.negative is not None:
            state.negative.put(plan.label, plan.negative, look.features, plan.entropy)
            state.against[plan.label, plan.negative] = plan.against

    def _enters(self, decision: Decision) -> bool:
        return self.options.insert == "all" or decision.desired

    def _plan(self, state: TDAState, logits: torch.Tensor) -> TDAPlan:
        label, spread = int(logits.argmax()), mixed_unit_entropy(logits)
        low, high = self.options.entropy_window
        negative = None
        if state.negative is not None and low < spread < high:
            negative = state.negative.place(label, spread)
        return TDAPlan(label, spread, state.positive.place(label, spread), negative, self._against(state, logits))

    def _against(self, state: TDAState, logits: torch.Tensor) -> torch.Tensor:
        """Return the numbers of the classes with a probability in the window, padded to the size in the state."""
        p = torch.softmax(logits, dim=-1)
        numbers = ((p > self.options.mask_window[0]) & (p < self.options.mask_window[1])).nonzero()[:, 0]
        padded = state.against.new_full(state.against.shape[2:], len(p))
        padded[: len(numbers)] = numbers
        return padded


def _weights_against(state: TDAState, weights: torch.Tensor, plan: TDAPlan) -> torch.Tensor:
    """Return the sum of the weights [C, D] of the entries against each class, including the image at its position."""
    total = weights.new_zeros(len(weights) + 1)
    if plan.negative is not None:
        total.index_add_(0, plan.against, weights[plan.label, plan.negative].expand(len(plan.against)))
        weights[plan.label, plan.negative] = 0
    entries = weights.nonzero(as_tuple=True)
    numbers = state.against[entries]
    total.index_add_(0, numbers.flatten(), weights[entries][:, None].expand_as(numbers).flatten())
    return total[:-1]


def _weights(similar: torch.Tensor, sharpness: float) -> torch.Tensor:
    return torch.exp(-sharpness * (1 - similar))
