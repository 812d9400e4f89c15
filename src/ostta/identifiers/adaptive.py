"""One population or two: where unknown images are rare, nothing is cut in two.

LDA always cuts the scores in two, and on a stream without unknown images it rejects half of the known ones. Here the cut is made only
while enough recent images look like no class at all. The score says for each image how well it fits (`fit`): the chance that an image
of no class would fit its best class no better. Of images of no class this chance is spread evenly over 0 to 1, so their share in
the stream is seen in how many images have a small one (Storey's estimate of the share of nulls).

    like_none_i = max(0, 1 - fit_i / 0.2)                 on the mean 0.1 for images of no class, near 0 for known ones
    share       = mean of like_none over the last 512 images / 0.1

Two populations while the share is high: LDA's threshold. One while it is low: every image is accepted but those that lie in a
cloud of images that fit no class (`cloud`), and none is reliably unknown, so that nothing is learned from it.

With a score that has no such evidence it decides as LDA with exact search does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.banks import WINDOWS, ScoreBank
from ..core.checks import require_names, stored_count
from ..core.cuts import cut_in_two
from ..core.options import Options, option
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict

# Fits below this count, and images before anything is rejected.
SMALL_FIT, FIRST = 0.2, 16


@dataclass(frozen=True)
class AdaptiveOptions(Options):
    """Chosen on streams of training images that the embedded model was not trained on.

    >>> AdaptiveOptions().two_above
    0.8
    """

    window: int = option(512, bounds=WINDOWS, about="how many recent scores count")
    two_above: float = option(0.8, at_least=0, about="a share of images like no class above this: two populations")
    one_below: float = option(
        0.7, at_least=0, about="a share below this: one population; between them the last verdict stays"
    )


class Adaptive:
    """LDA's threshold while there are two populations, and the cloud alone while there is one.

    >>> identifier = Adaptive()
    >>> for _ in range(40):
    ...     decision = identifier.observe(0.3, {"fit": 0.9, "cloud": 0.0})
    >>> decision.desired, identifier.observe(0.1, {"fit": 0.9, "cloud": 0.8}).desired
    (True, False)
    """

    Options = AdaptiveOptions
    about = "LDA while enough images fit no class; else all are accepted but a cloud of images that fit none: ours"
    needs: str | None = None

    def __init__(self, options: AdaptiveOptions | None = None, *, scale: float | None = 1.0) -> None:
        self.options = options or AdaptiveOptions()
        self.reset()

    def reset(self) -> None:
        self.bank, self._like_none = ScoreBank(self.options.window), ScoreBank(self.options.window)
        self._seen, self._two = 0, False

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        scores = self.bank.sorted_with(score)
        if self._seen < FIRST:
            return Decision(Verdict.UNRELIABLE_DESIRED, None, None, None)
        threshold, low, high = cut_in_two(scores)
        if self._is_two(evidence):
            return Decision(Verdict.of(score >= threshold, score, low, high), threshold, high, low)
        if evidence["cloud"] > 0.5:
            return Decision(Verdict.UNRELIABLE_UNDESIRED, None, None, None)
        return Decision(Verdict.RELIABLE_DESIRED if score > high else Verdict.UNRELIABLE_DESIRED, None, high, None)

    def take(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        self._two = self._is_two(evidence)
        self.bank.push(score)
        self._like_none.push(_like_none(evidence))
        self._seen += 1

    def observe(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        decision = self.peek(score, evidence)
        self.take(score, evidence)
        return decision

    def share(self, evidence: Evidence = NO_EVIDENCE) -> float:
        """The estimated share of images like no class, an image with `evidence` counted in."""
        values: NDArray[np.float64] = self._like_none.sorted_with(_like_none(evidence))
        return float(values.mean()) / (SMALL_FIT / 2)

    def memories(self) -> dict[str, ScoreBank]:
        return {"scores": self.bank, "like_none": self._like_none}

    def tensors(self) -> dict[str, torch.Tensor]:
        banks = {name: torch.from_numpy(bank.scores()) for name, bank in self.memories().items()}
        return {**banks, "seen": torch.tensor(self._seen), "two": torch.tensor(int(self._two))}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("scores", "like_none", "seen", "two"))
        found = [bank.stored(tensors, name) for name, bank in self.memories().items()]
        seen, two = stored_count(tensors, "seen"), stored_count(tensors, "two", 1)
        for bank, scores in zip(self.memories().values(), found, strict=True):
            bank.load(scores)
        self._seen, self._two = seen, bool(two)

    def _is_two(self, evidence: Evidence) -> bool:
        if "fit" not in evidence or "cloud" not in evidence:
            return True
        return self.share(evidence) > (self.options.one_below if self._two else self.options.two_above)


def _like_none(evidence: Evidence) -> float:
    return max(0.0, 1 - evidence["fit"] / SMALL_FIT) if "fit" in evidence else 0.0
