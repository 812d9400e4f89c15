"""The frozen model beside the one that adapts: the largest cosine, judged by LDA, as if nothing had ever been learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..core.checks import MOST_STEPS, require_names, stored
from ..core.scores import cosines
from ..core.types import Decision, Error, Scored, Verdict
from ..identifiers import LDA

# Images that LDA looks back on. If the frozen model judges only some of them, there are fewer scores.
WINDOW = 512


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The judgement of the frozen model on one image."""

    scored: Scored
    decision: Decision
    logits: torch.Tensor

    @property
    def index(self) -> int:
        return int(self.logits.argmax())


class Shadow:
    """Scores of the last images under the frozen model, each with the number of its step."""

    def __init__(self, classifier: torch.Tensor) -> None:
        self._classifier = classifier
        self._lda = LDA()
        self._steps = np.zeros(0, np.int64)
        self._scores = np.zeros(0)

    def judge(self, features: torch.Tensor, step: int) -> Judged:
        """Judge unit features [D] under the frozen tower, at step number `step`. Changes nothing."""
        logits = cosines(features.detach(), self._classifier)
        score = float(logits.max())
        # Steps only grow, so the recent scores are at the end.
        recent = self._scores[self._steps.searchsorted(step - WINDOW, "right") :]
        threshold, mu_undesired, mu_desired = self._lda.search(np.sort(np.append(recent, score)))
        verdict = Verdict.of(score >= threshold, score, mu_undesired, mu_desired)
        return Judged(Scored(score), Decision(verdict, threshold, mu_desired, mu_undesired), logits)

    def remember(self, judged: Judged, step: int) -> None:
        self._steps = np.append(self._steps, step)[-WINDOW:]
        self._scores = np.append(self._scores, judged.scored.value)[-WINDOW:]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"steps": torch.from_numpy(self._steps.copy()), "scores": torch.from_numpy(self._scores.copy())}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("steps", "scores"))
        count = min(len(tensors["steps"]) if tensors["steps"].ndim else 0, WINDOW)
        steps = stored(tensors, "steps", torch.int64, (count,), 0, MOST_STEPS).numpy().copy()
        scores = stored(tensors, "scores", torch.float64, (count,), -2, 2).numpy().copy()
        if (np.diff(steps) < 0).any():
            raise Error(
                "The stored scores of the frozen model are damaged: their steps are not in order.", code="state-damaged"
            )
        self._steps, self._scores = steps, scores
