"""Threshold selection that adapts to the share of unknown images.

LDA always splits the scores into two groups, so on a stream without unknown images it rejects half of the known images.
This identifier splits the scores only while many of the recent images are unknown. The evidence of the score
`neighbours` indicates many unknown images if one of these conditions holds:

    margin < 0.04       the worst-fitting quarter of the recent images fits its classes hardly better than by chance
    rejected > 1/4      this share of the recent images is closer to clearly unknown images than to known images
    groups = 2          the recent images of a class form two groups: known images and well-fitting unknown images

With many unknown images, an image is known if its score is at or above the split, which is 0 for this score. With few
unknown images, every image is accepted unless its contrast is below 0, and no image is reliably unknown, so no method
learns from it as unknown. Between the margins 0.04 and 0.18 the two cases cannot be distinguished and both errors are
costly, so the threshold decreases from the split to the lowest scores. The decision on the share of rejected images has
a hysteresis band.

With a score that has no such evidence, the decisions are those of LDA with exact search.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..config.declare import Options, option
from ..core.banks import WINDOWS, ScoreBank
from ..core.checks import require_names, stored_count
from ..core.otsu import otsu_split
from ..core.types import NO_EVIDENCE, Decision, Error, Evidence, Verdict
from ..identifiers.base import Identifier

# Half the width of the hysteresis band for the share of rejected images.
BAND = 0.025
# Lowest threshold, in distances between the two group means below the split. Few scores are lower.
DEPTH = 1.2


@dataclass(frozen=True)
class AdaptiveOptions(Options):
    """Options of `adaptive`, chosen on streams of training images that the embedded model was not trained on.

    The measurements are in docs/experiments/former-rule.md.

    >>> AdaptiveOptions().many_rejected
    0.25
    """

    window: int = option(512, bounds=WINDOWS, about="number of recent images that are used")
    many_margin: float = option(
        0.04,
        bounds=(-100, 100),
        about="largest margin of the worst-fitting quarter over chance at which the stream counts as "
        "having many unknown images",
    )
    few_margin: float = option(
        0.18,
        bounds=(-100, 100),
        about="smallest margin at which the stream counts as having few unknown images; between the two"
        " margins the threshold is interpolated",
    )
    many_rejected: float = option(
        0.25,
        bounds=(0, 2),
        about="share of recent images closer to clearly unknown than to known images, above which the "
        "stream counts as having many unknown images",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.few_margin <= self.many_margin:
            raise Error(
                f"`few_margin` ({self.few_margin:g}) must be above `many_margin` ({self.many_margin:g}).",
                code="option-invalid",
            )


class Adaptive(Identifier):
    """Use a threshold while many images are unknown; otherwise reject only images close to clearly unknown images.

    >>> identifier = Adaptive()
    >>> for _ in range(40):
    ...     decision = identifier.observe(0.3, {"contrast": 0.9, "margin": 0.4})
    >>> decision.desired, identifier.observe(0.1, {"contrast": -0.2, "margin": 0.4}).desired
    (True, False)
    """

    Options = AdaptiveOptions
    options: AdaptiveOptions
    about = "a threshold if many images are unknown; otherwise only images similar to clearly unknown ones are rejected"

    def __init__(self, options: AdaptiveOptions | None = None, *, scale: float | None = 1.0) -> None:
        super().__init__(options)
        self.reset()

    def reset(self) -> None:
        self.bank, self._rejected = ScoreBank(self.options.window), ScoreBank(self.options.window)
        self._many = False

    @property
    def warming_up(self) -> bool:
        # The bank of rejections stays empty if the score provides no evidence.
        return self.bank.young

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        split, low, high = otsu_split(self.bank.sorted_with(score))
        if not _has_evidence(evidence):
            return Decision(Verdict.of(score >= split, score, low, high), split, high, low)
        few = self._few(evidence)
        if few == 0:
            low, high = min(low, 0.0), max(high, 0.0)
            return Decision(Verdict.of(score >= 0, score, low, high), 0.0, high, low)
        threshold = -DEPTH * few if few < 1 else None
        if evidence["contrast"] < 0 or (threshold is not None and score < threshold):
            return Decision(Verdict.UNRELIABLE_UNDESIRED, threshold, high, None)
        verdict = Verdict.RELIABLE_DESIRED if score > high else Verdict.UNRELIABLE_DESIRED
        return Decision(verdict, threshold, high, None)

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        if _has_evidence(evidence):
            self._many = self._many_rejected(evidence)
            self._rejected.push(float(evidence["contrast"] < 0))
        self.bank.push(score)

    def memories(self) -> dict[str, ScoreBank]:
        return {"scores": self.bank, "rejected": self._rejected}

    def tensors(self) -> dict[str, torch.Tensor]:
        banks = {name: torch.from_numpy(bank.scores()) for name, bank in self.memories().items()}
        return {**banks, "many": torch.tensor(int(self._many))}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("scores", "rejected", "many"))
        stored_scores = [bank.stored(tensors, name) for name, bank in self.memories().items()]
        many = stored_count(tensors, "many", 1)
        for bank, scores in zip(self.memories().values(), stored_scores, strict=True):
            bank.load(scores)
        self._many = bool(many)

    def _few(self, evidence: Evidence) -> float:
        """Return 0 if many images are unknown, 1 if few are, and a value in between if it is unclear."""
        if evidence.get("groups", 1) > 1 or self._many_rejected(evidence):
            return 0.0
        many, few = self.options.many_margin, self.options.few_margin
        return min(max((evidence["margin"] - many) / (few - many), 0.0), 1.0)

    def _many_rejected(self, evidence: Evidence) -> bool:
        share = self._rejected.mean_with(float(evidence["contrast"] < 0))
        return bool(share > self.options.many_rejected + (-BAND if self._many else BAND))


def _has_evidence(evidence: Evidence) -> bool:
    return "contrast" in evidence and "margin" in evidence
