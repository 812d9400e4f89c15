"""CLIPTTA for a stream of single images: contrastive entropy, balanced classes, separated known and unknown scores.

The published method adapts to batches of hundreds of images with ten steps each. It does not work with single images:
the contrastive term has one column and no gradient, the threshold rejects the image, and the remaining term only makes
predictions more uniform. This module is our streaming variant: images are collected in a buffer of m, and after every m
images one step of Adam is taken on

    beta_tta L - beta_reg R + beta_ood E

    L   contrastive entropy, mean over the accepted images of the buffer, plus the mean over m images from the memory;
        the weight of a class is its count among the last 128 accepted predictions, plus one
    R   entropy of the mean prediction, in which the m images have a share of m/128 and earlier images the rest
    E   -(m_in - m_out)^2 of the scores u = max log softmax(z): soft means over the buffer and the last 512 scores,
        separated by Otsu's threshold over these scores

The identifier decides which images are accepted. The memory stores confident images of each class as pixels, which are
encoded again for each step. A term without images is omitted.

Cost, in forward passes of the image tower: one with graph for every image; at every m-th image 2m - 1 more with graph,
a backward pass through all 2m, and a second look if the image is accepted. With m = 8 this is about 3 forward passes
and 2 backward passes per image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..backbones.protocol import Backbone
from ..config.declare import option
from ..core.banks import WINDOWS, FeatureMemory, ScoreBank, named
from ..core.checks import require_intact, require_names, split, stored, stored_count
from ..core.losses import cosines
from ..core.optimisers import Optimiser, StepResult
from ..core.otsu import otsu_split
from ..core.overlay import TrainedOverlay
from ..core.types import Decision, Error, Look
from ..data.views import from_levels, to_levels
from ..methods import GradientMethod, GradientState, MethodSummary, Proposal
from ..methods.groups import Group, GroupOptions, group_option, rank_option
from .image_memory import ImageBuffer, ImageMemory

FILLING = Proposal(reason="the buffer is still filling")
NO_LOSS = Proposal(reason="no loss applies: the buffer has no accepted image, and the other terms are switched off")
# Tolerance for the sum of probabilities that were added in single precision.
ROUNDING = 1e-3


@dataclass(frozen=True)
class CLIPTTAOptions(GroupOptions):
    """Options of `cliptta`. Rate, weights and `gamma` are as published; the other options are not in the paper."""

    lr: float = option(1e-4, above=0, about="learning rate of Adam")
    eps: float = option(1e-6, above=0, about="constant that Adam adds to the denominator for numerical stability")
    buffer: int = option(
        8,
        bounds=(1, 256),
        about="number of images per update; the published method uses batches of 128 to 384 images and ten steps",
    )
    beta_tta: float = option(1.0, at_least=0, about="weight of the contrastive entropy")
    beta_reg: float = option(1.0, at_least=0, about="weight of the entropy of the mean prediction, which is maximised")
    beta_ood: float = option(
        1.0,
        at_least=0,
        about="weight of outlier contrastive exposure; the published runs use 1, the default of the "
        "published code is 0.1",
    )
    gamma: float = option(0.005, above=0, about="width of the sigmoid that separates known from unknown scores")
    recent: int = option(
        128,
        bounds=(1, 100_000),
        about="number of accepted predictions over which the classes are counted, and number of images "
        "in the mean prediction",
    )
    scores: int = option(512, bounds=WINDOWS, about="number of recent scores in the soft means")
    shots: int = option(
        4, bounds=(1, 64), about="largest number of images per class in the memory, limited by `memory`"
    )
    memory: int = option(
        64, bounds=(1, 1024), about="total number of images in the memory; the published method stores 16 per class"
    )
    longest: int = option(
        512,
        at_least=1,
        about="number of accepted images after which a stored image may be replaced by any other image of its class",
    )
    group: Group = group_option()
    rank: int = rank_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta_tta + self.beta_reg + self.beta_ood:
            raise Error("`beta_tta`, `beta_reg` and `beta_ood` are all 0: there is no loss.", code="option-conflict")
        if self.recent < self.buffer or self.scores < self.buffer:
            raise Error(
                f"`recent` and `scores` must be at least `buffer` ({self.buffer}): they count its images.",
                code="option-conflict",
            )

    def depth(self, classes: int) -> int:
        """Return the number of images per class in the memory: `shots`, limited by the capacity, and at least one."""
        return max(1, min(self.shots, self.memory // classes))

    @property
    def stored_images(self) -> int:
        """Return the maximum number of images whose pixels are stored."""
        return self.buffer - 1 + self.memory

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[Any, ...]]:
        return super().stored_shapes(classes, width) | {
            "buffer/labels": (self.buffer - 1,),
            "images/labels": (self.memory,),
            "answers/recent": (self.recent,),
            "answers/mean": (classes,),
        }


class CLIPTTAState(GradientState):
    """Trained values, stored images, and recent predictions.

    accepted:  number of accepted images, the clock of the memory.
    recent:    ring buffer of the classes of the last accepted images; `counted` is the number of writes to it.
    updates:   number of buffers used for updates; `mean` is the mean prediction over them.
    pending:   sum of the predictions of the images in the buffer.
    scores:    u of the last images.
    """

    def __init__(
        self,
        overlay: TrainedOverlay,
        optimiser: Optimiser,
        buffer: ImageBuffer,
        images: ImageMemory,
        options: CLIPTTAOptions,
    ) -> None:
        super().__init__(overlay, optimiser)
        self.buffer, self.images = buffer, images
        self.accepted = self.counted = self.updates = 0
        self.recent = torch.full((options.recent,), -1)
        self.mean = torch.zeros_like(overlay.classifier[:, 0])
        self.pending = torch.zeros_like(self.mean)
        self.scores = ScoreBank(options.scores)

    def restarted(self, fresh: GradientState) -> GradientState:
        """Return `fresh` with the memory of this state.

        The memory stores pixels, which do not depend on the trained values; scores and predictions do.
        """
        assert isinstance(fresh, CLIPTTAState)
        fresh.images, fresh.accepted = self.images, self.accepted
        return fresh

    def memories(self) -> dict[str, FeatureMemory]:
        return {"buffer": self.buffer, "images": self.images}

    def counts(self, label: int | None) -> torch.Tensor:
        """Return the count of each class among the recent accepted predictions, plus one.

        If `label` is not None, its class is counted once more.
        """
        recent = self.recent
        if label is not None:
            recent = recent.clone()
            recent[self.counted % len(recent)] = label
        counts = recent[recent >= 0].bincount(minlength=len(self.mean)) + 1
        return counts.to(self.mean)

    def count(self, label: int) -> None:
        """Count an accepted image."""
        self.recent[self.counted % len(self.recent)] = label
        self.counted += 1
        self.accepted += 1

    def tensors(self) -> dict[str, torch.Tensor]:
        answers = {
            "accepted": torch.tensor(self.accepted),
            "counted": torch.tensor(self.counted),
            "updates": torch.tensor(self.updates),
            "recent": self.recent.clone(),
            "mean": self.mean.clone(),
            "pending": self.pending.clone(),
            "scores": torch.from_numpy(self.scores.scores()),
        }
        return {
            **super().tensors(),
            **named(buffer=self.buffer.tensors(), images=self.images.tensors(), answers=answers),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        overlay, optimiser, buffer, images, answers = split(
            tensors, "overlay", "optimiser", "buffer", "images", "answers"
        )
        require_names(answers, ("accepted", "counted", "updates", "recent", "mean", "pending", "scores"))
        classes = len(self.mean)
        accepted, updates = stored_count(answers, "accepted"), stored_count(answers, "updates")
        counted = stored_count(answers, "counted", accepted)
        recent = stored(answers, "recent", torch.int64, self.recent.shape, -1, classes - 1)
        agree = ((recent >= 0) == (torch.arange(len(recent)) < counted)).all()
        require_intact(agree, "list of recent answers", "its length is not the stored count")
        scores = self.scores.stored(answers)
        self.buffer.load(buffer, classes)
        mean = _probabilities(answers, "mean", classes, 1 if updates else 0)
        pending = _probabilities(answers, "pending", classes, len(self.buffer))
        self.images.load(images, classes, accepted)
        super().load(named(overlay=overlay, optimiser=optimiser))
        self.accepted, self.counted, self.updates = accepted, counted, updates
        self.recent.copy_(recent)
        self.mean.copy_(mean)
        self.pending.copy_(pending)
        self.scores.load(scores)


class CLIPTTA(GradientMethod):
    """Learn from buffered images, accepted or not, and from stored confident images."""

    Options = CLIPTTAOptions
    summary = MethodSummary(
        "LayerNorms of the image tower, or another group",
        "LayerNorms, Adam's moments, 7 images, up to 4 images a class (64 in all), 128 answers, 512 scores, score bank",
        "1 forward; every 8th image: +15 forwards, +16 backwards; desired: +1 forward",
        "Lafon et al. 2025 (CLIPTTA), in a streaming form",
    )

    options: CLIPTTAOptions

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], options: CLIPTTAOptions
    ) -> None:
        super().__init__(backbone, classifier, classes, options)
        self._preprocessing = backbone.preprocessing

    def optimiser(self) -> Optimiser:
        return Optimiser("adamw", self.options.lr, eps=self.options.eps, decay=0.0)

    def start(self) -> CLIPTTAState:
        options, classifier = self.options, self.initial.classifier
        size, device = self._preprocessing.image_size, classifier.device
        depth = options.depth(len(classifier))
        return CLIPTTAState(
            self.initial,
            self.optimiser(),
            ImageBuffer(options.buffer - 1, size, device),
            ImageMemory(options.memory, depth, options.longest, size, device),
            options,
        )

    def propose(self, state: CLIPTTAState, look: Look[None], decision: Decision) -> Proposal:
        if not state.buffer.full:
            return FILLING
        options, waiting = self.options, len(state.buffer)
        accepted = torch.tensor([*(label >= 0 for label in state.buffer.labels), decision.desired])
        counts = state.counts(_answer(look) if decision.desired else None)
        share, threshold = self._share(state), self._threshold(state, look)
        # The last scores belong to the images in the buffer, which are scored again with graph.
        others = torch.from_numpy(state.scores.scores()[: len(state.scores) - waiting]).to(state.mean)
        drawn = state.images.drawn(options.buffer, state.updates)
        if not (options.beta_reg or (options.beta_ood and threshold is not None) or bool(accepted.any()) or len(drawn)):
            return NO_LOSS

        def loss(look: Look[None], further: torch.Tensor) -> torch.Tensor:
            classifier, z = state.overlay.differentiable(look)
            remembered = cosines(further, classifier)
            own, drawn = torch.cat([remembered[:waiting], z[None]]), remembered[waiting:]
            terms = [-options.beta_reg * mixed_entropy(self.logit_scale * own, state.mean, share)]
            for images in (own[accepted.to(own.device)], drawn):
                if len(images):
                    terms.append(options.beta_tta * contrastive_entropy(self.logit_scale * images, counts).mean())
            if threshold is not None:
                terms.append(options.beta_ood * outlier_exposure(_scores(own), others, threshold, options.gamma))
            return torch.stack(terms).sum()

        pixels = from_levels(torch.cat([state.buffer.pixels, drawn]), self._preprocessing)
        diagnostics = {"accepted": int(accepted.sum()), "drawn": len(drawn)}
        return self.step(state, loss, pixels=pixels, diagnostics=diagnostics)

    def commit(self, state: CLIPTTAState, look: Look[None], decision: Decision, trained: StepResult | None) -> None:
        super().commit(state, look, decision, trained)
        label, z = _answer(look), look.cosines.detach()
        score = float(_scores(z))
        levels = to_levels(look.views.canonical, self._preprocessing)[0]
        state.scores.push(score)
        state.pending += torch.softmax(self.logit_scale * z, dim=-1)
        if decision.desired:
            state.count(label)
            confidence = min(1.0, float(torch.tensor(score).exp()))
            place = state.images.place(label, confidence, state.accepted)
            if place is not None:
                state.images.put(place, levels, label, confidence, state.accepted)
        if not state.buffer.full:
            state.buffer.push(levels, label if decision.desired else -1)
            return
        share = self._share(state)
        state.mean = (1 - share) * state.mean + share * state.pending / self.options.buffer
        state.pending = torch.zeros_like(state.mean)
        state.updates += 1
        state.buffer.clear()

    def _share(self, state: CLIPTTAState) -> float:
        """Return the weight of a buffer in the mean prediction: equal for all buffers until they fill the window."""
        return max(self.options.buffer / self.options.recent, 1 / (state.updates + 1))

    def _threshold(self, state: CLIPTTAState, look: Look[None]) -> float | None:
        """Return Otsu's threshold over the recent scores and that of the image; None if all scores are equal."""
        split = otsu_split(state.scores.sorted_with(float(_scores(look.cosines.detach()))))
        return split.threshold if split.low < split.high else None


def _answer(look: Look[None]) -> int:
    return int(look.logits.argmax())


def _scores(z: torch.Tensor) -> torch.Tensor:
    """Return u = max log softmax(z), at scale 1 as published; in single precision, as its range is about 0.1."""
    return torch.log_softmax(z.float(), dim=-1).max(dim=-1).values


def _probabilities(tensors: dict[str, torch.Tensor], name: str, classes: int, total: int) -> torch.Tensor:
    """Read a stored sum of `total` probability distributions over the classes."""
    values = stored(tensors, name, torch.float32, (classes,), 0, total + ROUNDING)
    close = abs(float(values.sum()) - total) <= ROUNDING * max(1, total)
    require_intact(close, f"tensor '{name}'", f"its values must sum to {total}")
    return values


# --- losses -----------------------------------------------------------------------------------------------------------
def contrastive_entropy(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return CLIPTTA's contrastive entropy of each image, from `logits` [B, C] and the class counts `counts` [C].

    The published form is, for each image i, the entropy of softmax_j(l_i,y_j) over the predicted classes y_j of all
    images of a batch. Images with the same class have equal columns, so the sum can be taken over classes:

        p_ic = n_c exp(l_ic) / sum_k n_k exp(l_ik),    H(p_i) + sum_c p_ic log n_c

    This takes time B C instead of B B, and `counts` may include images outside the batch. A class with count 0 is
    ignored.
    """
    logits, weights = logits[:, counts > 0], counts[counts > 0].log()
    log_p = torch.log_softmax(logits + weights, dim=-1)
    return -(log_p.exp() * (log_p - weights)).sum(-1)


def mixed_entropy(logits: torch.Tensor, before: torch.Tensor, share: float) -> torch.Tensor:
    """Return H((1 - share) before + share mean_i softmax(l_i)), the balance of classes; `before` [C] is constant."""
    mean = (1 - share) * before + share * torch.softmax(logits, dim=-1).mean(0)
    # A class may have probability 0, for which the gradient of the logarithm is not finite.
    return -(mean * mean.clamp(min=torch.finfo(mean.dtype).tiny).log()).sum()


def outlier_exposure(scores: torch.Tensor, others: torch.Tensor, threshold: float, width: float) -> torch.Tensor:
    """Return CLIPTTA's outlier contrastive exposure, -(m_in - m_out)^2, which separates the means at `threshold`.

    An image with score u belongs to the upper side with weight sigmoid((u - threshold) / width). The means are over
    `scores` [B], which carry the graph, and `others` [N], which are constants.
    """
    both = torch.cat([scores, others])
    inside = torch.sigmoid((both - threshold) / width)
    means = [(weight * both).sum() / weight.sum() for weight in (inside, 1 - inside)]
    return -((means[0] - means[1]) ** 2)
