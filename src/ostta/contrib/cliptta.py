"""CLIPTTA for a stream of single images: contrastive entropy, even use of classes, known and unknown scores driven apart.

The published method adapts to batches of hundreds of images, ten steps each. A single image leaves it nothing: its contrast has one
column and no gradient, its threshold rejects it, and what remains makes every answer more uniform. So this is a streaming form of
our own: images wait in a buffer of m, and at every m-th one step of Adam is taken on

    beta_tta L - beta_reg R + beta_ood E

    L   contrastive entropy, mean over the accepted images of the buffer, plus the mean over m images from the memory;
        classes count by how often they were among the last 128 accepted answers, and once more each
    R   entropy of the mean prediction, in which the m images have a share of m/128 and earlier ones the rest
    E   -(m_in - m_out)^2 of the scores u = max log softmax(z), the soft means over the buffer and the last 512 scores;
        the line between the two sides is Otsu's over these scores

Accepted is what the identifier accepts. The memory has confident images of each class, as pixels, which are encoded anew. A term
without images is left out.

Costs, in forwards of the image tower: one with graph for every image; at every m-th image 2m - 1 more with graph and a backward
through all 2m, and a second look for the answer where it is accepted. With m = 8, about 3 forwards and 2 backwards an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..backbones.protocol import Backbone
from ..config.declare import option
from ..core.banks import WINDOWS, FeatureMemory, ScoreBank, named
from ..core.checks import require_names, split, stored, stored_count
from ..core.losses import contrastive_entropy, mixed_entropy, outlier_exposure
from ..core.optimisers import Optimiser
from ..core.otsu import otsu_split
from ..core.scores import cosines
from ..core.types import Decision, Error, Look
from ..data.views import from_levels, to_levels
from ..methods.base import Facts, Proposal, Tuned, TunedState
from ..methods.gradient import Trained
from ..methods.trained_overlay import Group, GroupOptions, TrainedOverlay, group_option, rank_option
from .image_memory import ImageBuffer, ImageMemory

FILLING = Proposal(reason="the buffer is still filling")
NO_LOSS = Proposal(reason="no loss applies: the buffer has no accepted image, and the other terms are switched off")
# How far from one the sum of probabilities may be that were added up in single precision.
ROUNDING = 1e-3


@dataclass(frozen=True)
class CLIPTTAOptions(GroupOptions):
    """Rate, weights and `gamma` are the published code's; buffer, windows and memory are those of the streaming form."""

    lr: float = option(1e-4, above=0, about="rate of Adam")
    eps: float = option(1e-6, above=0, about="what Adam adds to the size of a moment before dividing by it")
    buffer: int = option(
        8, bounds=(1, 256), about="one step for so many images; published: batches of 128 to 384, ten steps"
    )
    beta_tta: float = option(1.0, at_least=0, about="weight of the contrastive entropy")
    beta_reg: float = option(1.0, at_least=0, about="weight of the entropy of the mean prediction, which is raised")
    beta_ood: float = option(
        1.0, at_least=0, about="weight of outlier contrastive exposure; the published runs have 1, or 0.1 by default"
    )
    gamma: float = option(0.005, above=0, about="width of the soft line between known and unknown scores")
    recent: int = option(
        128, bounds=(1, 100_000), about="how many accepted answers count the classes, and how many images make the mean"
    )
    scores: int = option(512, bounds=WINDOWS, about="how many recent scores the soft means are over")
    shots: int = option(4, bounds=(1, 64), about="images a class in the memory, where there is room for so many")
    memory: int = option(64, bounds=(1, 1024), about="images in the memory in all; published: 16 a class")
    longest: int = option(
        512,
        at_least=1,
        about="an image in the memory gives way to any other of its class after so many accepted images",
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
        """Images a class in the memory: `shots`, or as many as there is room for, and always one."""
        return max(1, min(self.shots, self.memory // classes))

    @property
    def stored_images(self) -> int:
        """The most images whose pixels are stored."""
        return self.buffer - 1 + self.memory

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name."""
        return {
            "buffer/labels": (self.buffer - 1,),
            "images/labels": (self.memory,),
            "answers/recent": (self.recent,),
        }


class CLIPTTAState(TunedState):
    """What is trained, the images, and what was answered.

    accepted:  how many images were, which is the time that the memory goes by.
    recent:    the classes of the last accepted images; `counted` is how many have been written to this ring.
    updates:   how many buffers were learned from; `mean` is the mean prediction over them.
    pending:   the sum of the predictions of the images in the buffer.
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

    def restarted(self, fresh: TunedState) -> TunedState:
        """The images in the memory stay, as their pixels come from no model. Scores and answers are those of the trained one."""
        assert isinstance(fresh, CLIPTTAState)
        fresh.images, fresh.accepted = self.images, self.accepted
        return fresh

    def memories(self) -> dict[str, FeatureMemory]:
        return {"buffer": self.buffer, "images": self.images}

    def counts(self, label: int | None) -> torch.Tensor:
        """How often each class is among the recent accepted answers, with one of class `label` more; and once more each."""
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
        if not bool(((recent >= 0) == (torch.arange(len(recent)) < counted)).all()):
            raise Error(
                "The stored recent answers are damaged: their number is not the stored count.", code="state-damaged"
            )
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


class CLIPTTA(Tuned):
    """Learn from a few images at a time, accepted or not, and from confident ones of before."""

    Options = CLIPTTAOptions
    facts = Facts(
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
        share, line = self._share(state), self._line(state, look)
        # The buffer's own images are the last scores, and are scored anew, with graph.
        others = torch.from_numpy(state.scores.scores()[: len(state.scores) - waiting]).to(state.mean)
        drawn = state.images.drawn(options.buffer, state.updates)
        if not (options.beta_reg or (options.beta_ood and line is not None) or bool(accepted.any()) or len(drawn)):
            return NO_LOSS

        def loss(look: Look[None], further: torch.Tensor) -> torch.Tensor:
            classifier, z = state.overlay.differentiable(look)
            remembered = cosines(further, classifier)
            own, drawn = torch.cat([remembered[:waiting], z[None]]), remembered[waiting:]
            terms = [-options.beta_reg * mixed_entropy(self.logit_scale * own, state.mean, share)]
            for some in (own[accepted.to(own.device)], drawn):
                if len(some):
                    terms.append(options.beta_tta * contrastive_entropy(self.logit_scale * some, counts).mean())
            if line is not None:
                terms.append(options.beta_ood * outlier_exposure(_scores(own), others, line, options.gamma))
            return torch.stack(terms).sum()

        pixels = from_levels(torch.cat([state.buffer.pixels, drawn]), self._preprocessing)
        diagnostics = {"accepted": int(accepted.sum()), "drawn": len(drawn)}
        return self.step(state, loss, pixels=pixels, diagnostics=diagnostics)

    def commit(self, state: CLIPTTAState, look: Look[None], decision: Decision, trained: Trained | None) -> None:
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
        """What a buffer counts in the mean prediction: as much as each one before it, until they fill the window."""
        return max(self.options.buffer / self.options.recent, 1 / (state.updates + 1))

    def _line(self, state: CLIPTTAState, look: Look[None]) -> float | None:
        """Otsu's threshold over the recent scores, the image's own among them; None where they are all alike."""
        split = otsu_split(state.scores.sorted_with(float(_scores(look.cosines.detach()))))
        return split.threshold if split.low < split.high else None


def _answer(look: Look[None]) -> int:
    return int(look.logits.argmax())


def _scores(z: torch.Tensor) -> torch.Tensor:
    """u = max log softmax(z), at scale 1 as published; in single precision, as it spans a tenth and no more."""
    return torch.log_softmax(z.float(), dim=-1).max(dim=-1).values


def _probabilities(tensors: dict[str, torch.Tensor], name: str, classes: int, total: int) -> torch.Tensor:
    """Read a stored sum of `total` distributions over the classes."""
    values = stored(tensors, name, torch.float32, (classes,), 0, total + ROUNDING)
    if not abs(float(values.sum()) - total) <= ROUNDING * max(1, total):
        raise Error(f"The stored tensor '{name}' is damaged: its values must sum to {total}.", code="state-damaged")
    return values
