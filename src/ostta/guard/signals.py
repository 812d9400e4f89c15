"""What can be seen without labels: numbers about the last images, each with a band that a usual stream does not leave.

evenness      exp(entropy of the classes of accepted images) less 1, by what it would be if all classes were alike
disagreement  share of images of which the frozen model says something else: another verdict, or another class
gap           distance of the shares of accepted images, of this model and of the frozen one; where nothing is trained, only
              how many fewer are accepted: the frozen model's LDA rejects half of the known images where unknown ones are rare
estimate      1 - disagreement / r^3, r the evenness by that of the frozen model's answers: AETTA's estimate of the accuracy,
              with the frozen model in the place of dropout
step, drift   how far recent updates move the parameters, and how far they are from the start, by their length there
separation    distance of the two means of the scores, by its usual one
not finite    updates of late that could not be taken as a value was not finite
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
import torch

from ..core.checks import require_names, stored
from .options import GuardOptions

# Accepted images, checks, updates and failures that are looked back on, and how many there must be at the least.
ANSWERS, CHECKS, SPARSE, UPDATES, FAILURES = (96, 32), (128, 48), (24, 12), (16, 4), 64
# So many updates of late that are not finite are too many.
NOT_FINITE = 3
# The distance of the means: of the last so many images, and its usual one.
FAST, SLOW = 1 / 32, 1 / 512
LARGEST = 1e30

# The numbers of a check: whether it is accepted and as what, by this model and by the frozen one.
Check = tuple[int, int, int, int]


class Signals:
    """The last images, as far as the signals need them."""

    def __init__(self, options: GuardOptions, classes: int) -> None:
        self.options, self._classes = options, classes
        self.reset()

    def reset(self) -> None:
        self._answers: deque[int] = deque(maxlen=ANSWERS[0])
        self._checks: deque[Check] = deque(maxlen=CHECKS[0])
        self._updates: deque[float] = deque(maxlen=UPDATES[0])
        self._failed: deque[int] = deque(maxlen=FAILURES)
        self._sparse = False
        self._drift = self._fast = self._slow = 0.0
        self._separated = 0

    # --- what happened ------------------------------------------------------------------------------------------------
    def answered(self, index: int | None, failed: bool, separation: float | None) -> None:
        """One image: its class where it was accepted, whether its update failed, and the distance of the two means."""
        if index is not None:
            self._answers.append(index)
        self._failed.append(int(failed))
        if separation is not None and 0 < separation < LARGEST:
            self._separated += 1
            self._fast += (separation - self._fast) * max(FAST, 1 / self._separated)
            self._slow += (separation - self._slow) * max(SLOW, 1 / self._separated)

    def failed(self) -> None:
        """An update that was not finite, or that nothing could be seen through."""
        self._failed.append(1)

    def checked(self, check: Check, every: bool) -> None:
        """What both models say of one image; `every`: whether all images are checked for now."""
        if every == self._sparse:  # checks of one kind only, as they look back on other numbers of images
            self._checks.clear()
            self._sparse = not every
        self._checks.append(check)

    def moved(self, step: float) -> None:
        """By how much of their length an update has moved the parameters."""
        self._updates.append(min(step, LARGEST))

    def drifted(self, drift: float) -> None:
        """How far the parameters are from the start, by their length there."""
        self._drift = min(drift, LARGEST)

    # --- what it means ------------------------------------------------------------------------------------------------
    def values(self) -> dict[str, float]:
        """All signals of which enough was seen."""
        found = {"not_finite": float(sum(self._failed)), "drift": self._drift}
        if len(self._answers) >= ANSWERS[1] and self._classes > 1:
            found["evenness"] = evenness(self._answers, self._classes)
        if len(self._updates) >= UPDATES[1]:
            found["step"] = float(np.mean(self._updates))
        if self._separated >= 1 / FAST and self._slow:
            found["separation"] = self._fast / self._slow
        most, least = SPARSE if self._sparse else CHECKS
        if len(self._checks) >= least:
            found |= _compared(np.array(self._checks)[-most:], self._classes, trains=self._sparse)
            if len(self._checks) < most:  # two small numbers of answers are never alike even
                found.pop("estimate", None)
        return found

    def out(self, values: Mapping[str, float]) -> dict[str, float]:
        """The signals that are out of their band and lead on to the next rung."""
        limits = self.options
        low = {"evenness": limits.min_evenness, "estimate": limits.min_estimate}
        high = {
            "disagreement": limits.max_disagreement,
            "gap": limits.max_gap,
            "step": limits.max_step,
            "drift": limits.max_drift,
            "not_finite": NOT_FINITE - 1,
        }
        return {
            name: value
            for name, value in values.items()
            if (name in low and value < low[name]) or (name in high and value > high[name])
        }

    def forget(self) -> None:
        """After a return to an earlier state: what the later one did says nothing about it."""
        self._checks.clear()
        self._updates.clear()
        self._failed.clear()
        self._drift = 0.0

    # --- state files --------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "answers": torch.tensor(list(self._answers), dtype=torch.int64),
            "checks": torch.tensor(list(self._checks), dtype=torch.int64).reshape(-1, 4),
            "updates": torch.tensor(list(self._updates), dtype=torch.float64),
            "failed": torch.tensor(list(self._failed), dtype=torch.int64),
            "numbers": torch.tensor(
                [self._drift, self._fast, self._slow, float(self._separated), float(self._sparse)], dtype=torch.float64
            ),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("answers", "checks", "updates", "failed", "numbers"))
        sizes = {"answers": ANSWERS[0], "checks": CHECKS[0], "updates": UPDATES[0], "failed": FAILURES}
        count = {name: min(len(tensors[name]) if tensors[name].ndim else 0, most) for name, most in sizes.items()}
        last = self._classes - 1
        answers = stored(tensors, "answers", torch.int64, (count["answers"],), 0, last).tolist()
        checks = stored(tensors, "checks", torch.int64, (count["checks"], 4), 0, max(last, 1)).tolist()
        updates = stored(tensors, "updates", torch.float64, (count["updates"],), 0, LARGEST).tolist()
        failed = stored(tensors, "failed", torch.int64, (count["failed"],), 0, 1).tolist()
        numbers = stored(tensors, "numbers", torch.float64, (5,), 0, LARGEST).tolist()
        self.reset()
        self._answers.extend(answers)
        self._checks.extend((each[0], each[1], each[2], each[3]) for each in checks)
        self._updates.extend(updates)
        self._failed.extend(failed)
        self._drift, self._fast, self._slow = numbers[:3]
        self._separated, self._sparse = int(numbers[3]), bool(numbers[4])


def _compared(checks: np.ndarray, classes: int, trains: bool) -> dict[str, float]:
    known, index, frozen_known, frozen_index = checks.T
    other = (known != frozen_known) | ((known == 1) & (index != frozen_index))
    disagreement = float(other.mean())
    fewer = float(frozen_known.mean() - known.mean())
    found = {"disagreement": disagreement, "gap": abs(fewer) if trains else max(fewer, 0.0)}
    if classes > 1:
        own, frozen = (
            evenness(answers.tolist(), classes) if len(answers) else 1.0
            for answers in (index[known == 1], frozen_index[frozen_known == 1])
        )
        by_frozen = min(1.0, own / frozen) if frozen else 1.0
        wrong = min(1 - 1 / classes, disagreement / max(by_frozen, 1e-3) ** 3)
        found["estimate"] = 1 - wrong
    return found


def evenness(answers: Iterable[int], classes: int) -> float:
    """How evenly the classes are used: 0 where all answers are of one class, about 1 where they are drawn from all alike.

    >>> evenness([3] * 40, 10), round(evenness(list(range(10)) * 4, 10), 1)
    (0.0, 1.1)
    """
    counts = np.bincount(np.fromiter(answers, np.int64), minlength=classes)
    return (_effective(counts) - 1) / max(_usual(int(counts.sum()), classes) - 1, 1e-9)


def _effective(counts: np.ndarray) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@cache
def _usual(answers: int, classes: int) -> float:
    """What `_effective` is of so few answers if all classes are alike."""
    drawn = np.random.Generator(np.random.PCG64(0)).integers(classes, size=(64, answers))
    return float(np.mean([_effective(np.bincount(row, minlength=classes)) for row in drawn]))
