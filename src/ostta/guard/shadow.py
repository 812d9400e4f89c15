"""Decisions of the frozen model: its largest cosine is the score, and LDA decides."""

from __future__ import annotations

import numpy as np
import torch

from ..core.checks import MOST_STEPS, require_intact, require_names, stored, stored_length
from ..core.losses import cosines
from ..core.types import Scored
from ..identifiers.lda import LDA, LDAOptions
from ..memory import FrozenJudgement


class Shadow:
    """Scores of the last images under the frozen model, each with the number of its step.

    The images are those of the last `options.window` steps. There are fewer scores if the frozen model is applied to
    only some images.
    """

    def __init__(self, classifier: torch.Tensor, options: LDAOptions) -> None:
        self._classifier, self._window = classifier, options.window
        self._lda = LDA(options)
        self._steps = np.zeros(0, np.int64)
        self._scores = np.zeros(0)

    def judge(self, features: torch.Tensor, step: int) -> FrozenJudgement:
        """Judge unit features [D] under the frozen tower, at step number `step`. Changes nothing."""
        # With `precision=mixed` the features may have half precision.
        logits = cosines(features.detach().to(self._classifier.dtype), self._classifier)
        score = float(logits.max())
        # Steps only grow, so the recent scores are at the end.
        recent = self._scores[self._steps.searchsorted(step - self._window, "right") :]
        return FrozenJudgement(Scored(score), self._lda.decide(score, np.sort(np.append(recent, score))), logits)

    def remember(self, judged: FrozenJudgement, step: int) -> None:
        self._steps = np.append(self._steps, step)[-self._window :]
        self._scores = np.append(self._scores, judged.scored.value)[-self._window :]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"steps": torch.from_numpy(self._steps.copy()), "scores": torch.from_numpy(self._scores.copy())}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("steps", "scores"))
        count = stored_length(tensors, "steps", self._window)
        steps = stored(tensors, "steps", torch.int64, (count,), 0, MOST_STEPS).numpy().copy()
        scores = stored(tensors, "scores", torch.float64, (count,), -2, 2).numpy().copy()
        in_order = not (np.diff(steps) < 0).any()
        require_intact(in_order, "list of scores of the frozen model", "its steps are not in order")
        self._steps, self._scores = steps, scores
