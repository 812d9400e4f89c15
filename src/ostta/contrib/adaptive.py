"""Many unknown images or few: where they are rare, nothing is cut in two.

LDA always cuts the scores in two, and on a stream without unknown images it rejects half of the known ones. Here the cut is made only
while there are many unknown images among the recent ones, as the evidence of the score `neighbours` says:

    margin < 0.04       the worst-fitting quarter of the recent images fits its classes hardly better than by chance, or
    rejected > 1/4      of the recent images, so many lie nearer to surely unknown images than to known ones (contrast < 0), or
    groups = 2          the recent images of a class are clearly of two kinds: unknown ones that fit well

Many: an image is known if its score is on the upper side of the cut, which is 0 for this score. Few: every image is accepted
but those whose contrast is below 0, and none is reliably unknown, so that nothing is learned from it. Nobody can tell the two
apart at every margin, and both mistakes are dear: so between the margins 0.04 and 0.18 the line goes down from the cut to where the
lowest scores are. The share of rejected images has a band in which the last verdict stays.

With a score that has no such evidence it decides as LDA with exact search does.
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

# Half of the band in which the last verdict on the share of rejected images stays.
BAND = 0.025
# Where the line ends that goes down from the cut: so many distances of the two groups' means below it, few scores are lower.
DEPTH = 1.2


@dataclass(frozen=True)
class AdaptiveOptions(Options):
    """Chosen on streams of training images that the embedded model was not trained on; docs/experiments/former-rule.md has the tables.

    >>> AdaptiveOptions().many_rejected
    0.25
    """

    window: int = option(512, bounds=WINDOWS, about="how many recent images count")
    many_margin: float = option(
        0.04, bounds=(-100, 100), about="up to this margin of the worst quarter over chance, unknown images are many"
    )
    few_margin: float = option(
        0.18, bounds=(-100, 100), about="from this margin on they are few; in between, something of both"
    )
    many_rejected: float = option(
        0.25, bounds=(0, 2), about="many unknown images while more than this share lies among the surely unknown"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.few_margin <= self.many_margin:
            raise Error(
                f"`few_margin` is above `many_margin`, not {self.few_margin:g} with {self.many_margin:g}.",
                code="option-invalid",
            )


class Adaptive(Identifier):
    """A threshold while unknown images are many, and only what lies among the surely unknown is rejected while they are few.

    >>> identifier = Adaptive()
    >>> for _ in range(40):
    ...     decision = identifier.observe(0.3, {"contrast": 0.9, "margin": 0.4})
    >>> decision.desired, identifier.observe(0.1, {"contrast": -0.2, "margin": 0.4}).desired
    (True, False)
    """

    Options = AdaptiveOptions
    options: AdaptiveOptions
    about = "a threshold while unknown images are many; while they are few, only what lies among sure ones is rejected: ours"

    def __init__(self, options: AdaptiveOptions | None = None, *, scale: float | None = 1.0) -> None:
        super().__init__(options)
        self.reset()

    def reset(self) -> None:
        self.bank, self._rejected = ScoreBank(self.options.window), ScoreBank(self.options.window)
        self._many = False

    @property
    def warming_up(self) -> bool:
        # The other bank stays empty where the score has no evidence for it.
        return self.bank.young

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        threshold, low, high = otsu_split(self.bank.sorted_with(score))
        if not _says_enough(evidence):
            return Decision(Verdict.of(score >= threshold, score, low, high), threshold, high, low)
        few = self._few(evidence)
        if few == 0:
            low, high = min(low, 0.0), max(high, 0.0)
            return Decision(Verdict.of(score >= 0, score, low, high), 0.0, high, low)
        line = None if few == 1 else -DEPTH * few
        if evidence["contrast"] < 0 or (line is not None and score < line):
            return Decision(Verdict.UNRELIABLE_UNDESIRED, line, high, None)
        return Decision(Verdict.RELIABLE_DESIRED if score > high else Verdict.UNRELIABLE_DESIRED, line, high, None)

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        if _says_enough(evidence):
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
        found = [bank.stored(tensors, name) for name, bank in self.memories().items()]
        many = stored_count(tensors, "many", 1)
        for bank, scores in zip(self.memories().values(), found, strict=True):
            bank.load(scores)
        self._many = bool(many)

    def _few(self, evidence: Evidence) -> float:
        """0 where unknown images are many, 1 where they are few."""
        if evidence.get("groups", 1) > 1 or self._many_rejected(evidence):
            return 0.0
        many, few = self.options.many_margin, self.options.few_margin
        return min(max((evidence["margin"] - many) / (few - many), 0.0), 1.0)

    def _many_rejected(self, evidence: Evidence) -> bool:
        share = self._rejected.mean_with(float(evidence["contrast"] < 0))
        return bool(share > self.options.many_rejected + (-BAND if self._many else BAND))


def _says_enough(evidence: Evidence) -> bool:
    return "contrast" in evidence and "margin" in evidence
