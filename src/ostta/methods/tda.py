"""TDA: a cache of confident features for each class corrects the frozen logits; nothing is trained.

    final = l + a+ sum_i exp(-b+ (1 - f.k_i)) onehot(y_i) - a- sum_j exp(-b- (1 - f.k_j)) [low < p_j < high]

The image itself is counted in both caches before they are used, so a look works with the places it would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ..backbones.protocol import Backbone
from ..config.declare import Options, option
from ..core.banks import ClassCache, FeatureMemory, named
from ..core.checks import require_room, split, stored
from ..core.scores import cosines, mixed_unit_entropy
from ..core.types import Decision, Error, Look, ViewSource
from .base import Facts, Plain, Proposal
from .cache_weights import CacheWeights, cache_factor, cache_weights_option
from .gradient import Trained


@dataclass(frozen=True)
class TDAOptions(Options):
    """Defaults are the published code's; upstream's differ by data set."""

    shots: int = option(3, bounds=(1, 10_000), about="depth of the positive cache: features a class")
    alpha: float = option(1.0, number="D15", about="weight of the positive cache; upstream's differs by data set")
    beta: float = option(8.0, number="D15", about="sharpness of the positive cache; upstream's differs by data set")
    negative_shots: int = option(
        2, number="D12", bounds=(0, 10_000), about="depth of the negative cache; 0 leaves it out"
    )
    negative_alpha: float = option(0.117, about="weight of the negative cache")
    negative_beta: float = option(1.0, about="sharpness of the negative cache")
    cache_weights: CacheWeights = cache_weights_option()
    entropy_window: tuple[float, ...] = option(
        (0.2, 1.0), number="D15", about="entropies that enter the negative cache; upstream's upper bound is 0.5"
    )
    mask_window: tuple[float, ...] = option(
        (0.03, 1.0), about="which class probabilities of a negative entry count against a class"
    )
    insert: Literal["all", "desired"] = option(
        "all", paper="desired", number="D12", about="which images enter the caches"
    )
    score_of: Literal["logits", "cosine"] = option(
        "logits", paper="cosine", number="D29", about="what the score is the largest of"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("entropy_window", "mask_window"):
            window = getattr(self, name)
            if len(window) != 2 or window[0] > window[1]:
                raise Error(f"`{name}` is a lower and an upper bound, not {window}.", code="option-invalid")

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        shapes: dict[str, tuple[int, ...]] = {"positive/features": (classes, self.shots, width)}
        if self.negative_shots:
            shapes["negative/features"] = (classes, self.negative_shots, width)
            shapes["negative/numbers_against"] = (classes, self.negative_shots, self.most_against(classes))
        return shapes

    def most_against(self, classes: int) -> int:
        """How many classes can have a probability above the lower bound of `mask_window`."""
        low = self.mask_window[0]
        return min(classes, int(1 / low) + 1) if low * classes > 1 else classes


class TDAState:
    """The two caches; beside each negative entry, the numbers of the classes it speaks against.

    Few classes can have a probability above the window's lower bound, so there is room for those few and not for all: memory and
    time would grow with the square of the classes. A place without a class holds their number, one more than the last of them.
    """

    def __init__(self, classes: int, width: int, options: TDAOptions, device: torch.device | None = None) -> None:
        negative = options.negative_shots
        self.positive = ClassCache(classes, options.shots, width, device)
        self.negative = ClassCache(classes, negative, width, device) if negative else None
        room = (classes, negative, options.most_against(classes))
        require_room("The classes that a negative cache speaks against: a table", room)
        self.against = torch.full(room, classes, dtype=torch.int32, device=device)

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
class Plan:
    """Where the image goes: its class, its entropy, its places in the caches (None: it does not enter)."""

    label: int
    entropy: float
    positive: int | None
    negative: int | None
    against: torch.Tensor


class TDA(Plain):
    """The frozen logits, corrected by what the caches say; nothing is trained."""

    Options = TDAOptions
    facts = Facts("nothing", "3 + 2 features a class, score bank", "1 forward", "Karmanov et al. 2024 (TDA)")
    looks_in_half = True
    options: TDAOptions

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: TDAOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        # Scores are scaled logits: with CLIP's scale of 100 the grid of the identifier is 0, 1, ..., 99 (D29).
        factor = cache_factor(options.cache_weights, self.logit_scale)
        self.alpha, self.negative_alpha = factor * options.alpha, factor * options.negative_alpha
        self.score_scale = 1.0 if options.score_of == "cosine" else self.logit_scale

    def start(self) -> TDAState:
        classes, width = self.classifier.shape
        return TDAState(classes, width, self.options, self.classifier.device)

    @torch.no_grad()
    def look(self, state: TDAState, features: torch.Tensor, views: ViewSource) -> Look[Plan]:
        z = cosines(features, self.classifier)
        logits = self.logit_scale * z
        plan = self._plan(state, logits)
        similar, filled = state.positive.similarities(features, plan.label, plan.positive)
        final = logits + self.alpha * (_weights(similar, self.options.beta) * filled).sum(1)
        if state.negative is not None:
            similar, filled = state.negative.similarities(features, plan.label, plan.negative)
            weights = _weights(similar, self.options.negative_beta) * filled
            final = final - self.negative_alpha * _spoken_against(state, weights, plan)
        return Look(views, features, z, final, plan, z if self.options.score_of == "cosine" else None)

    def propose(self, state: TDAState, look: Look[Plan], decision: Decision) -> Proposal:
        if self._enters(decision):
            return Proposal(reason="tda trains nothing")
        return Proposal(reason="an undesired image stays out of the caches")

    def commit(self, state: TDAState, look: Look[Plan], decision: Decision, trained: Trained | None) -> None:
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

    def _plan(self, state: TDAState, logits: torch.Tensor) -> Plan:
        label, spread = int(logits.argmax()), mixed_unit_entropy(logits)
        low, high = self.options.entropy_window
        negative = None
        if state.negative is not None and low < spread < high:
            negative = state.negative.place(label, spread)
        return Plan(label, spread, state.positive.place(label, spread), negative, self._against(state, logits))

    def _against(self, state: TDAState, logits: torch.Tensor) -> torch.Tensor:
        """The numbers of the classes whose probability lies in the window, filled up to the state's room for them."""
        p = torch.softmax(logits, dim=-1)
        numbers = ((p > self.options.mask_window[0]) & (p < self.options.mask_window[1])).nonzero()[:, 0]
        room = state.against.new_full(state.against.shape[2:], len(p))
        room[: len(numbers)] = numbers
        return room


def _spoken_against(state: TDAState, weights: torch.Tensor, plan: Plan) -> torch.Tensor:
    """The sum of the weights [C, D] of the entries that speak against each class, the image itself in its planned place."""
    total = weights.new_zeros(len(weights) + 1)
    if plan.negative is not None:
        total.index_add_(0, plan.against, weights[plan.label, plan.negative].expand(len(plan.against)))
        weights[plan.label, plan.negative] = 0
    speaking = weights.nonzero(as_tuple=True)
    numbers = state.against[speaking]
    total.index_add_(0, numbers.flatten(), weights[speaking][:, None].expand_as(numbers).flatten())
    return total[:-1]


def _weights(similar: torch.Tensor, sharpness: float) -> torch.Tensor:
    return torch.exp(-sharpness * (1 - similar))
