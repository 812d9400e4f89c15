"""Signals without labels: numbers about recent images, each with a band that a usual stream does not leave.

evenness      how many classes the accepted images are spread over, relative to the frozen model's classes of the same images:
              ((n - 1) + s) / ((n_frozen - 1) + s), with n = exp(entropy of the classes), the effective number of classes, and
              s a tenth of what n - 1 is if all classes are equally frequent. A stream that shows few classes is not out of band
diversity     of a method that trains: (n - 1) of its accepted images, relative to what it is if all classes are equally frequent.
              It leads no further than to skipped updates: training on few classes harms the others, answering does not
disagreement  share of images that the frozen model judges differently: another verdict, or another class
gap           difference between the share of accepted images and the frozen model's. A decision with a probability counts by its
              probability
estimate      1 - disagreement / min(evenness, 1)^3: AETTA's estimate of the accuracy, with the frozen model instead of dropout
step, drift   how far recent updates move the parameters, and how far they are from the start, relative to their norm there
separation    distance between the two means of the scores, relative to its usual value
not_finite    number of recent updates that were discarded because a value was not finite

An image on which the decision is undecided is not compared. If nothing is trained, an image that only the frozen model rejects counts
for neither disagreement nor gap: with few unknown images, the LDA of the frozen model rejects half of the known ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from ..core.checks import require_names, stored
from ..core.types import Decision
from .options import GuardOptions

# Window and minimum of each signal. Classes and checks have a window for checks of every image and one for rare checks.
ACCEPTED, CHECKS, RARE, UPDATES, FAILURES = (96, 32), (128, 48), (24, 12), (16, 4), 64
# Updates within the window of failures that make `not_finite` leave its band.
NOT_FINITE = 3
# Weights of the newest image in the recent and in the usual distance of the means.
FAST, SLOW = 1 / 32, 1 / 512
# `s` in the definition of evenness, as a share: without it, the ratio of two small numbers would be chance.
SMOOTHING = 0.1
LARGEST = 1e30


class Check(NamedTuple):
    """The judgement of the adapter and of the frozen model on one image; `probability` is the adapter's that it is known."""

    known: int
    class_index: int
    frozen_known: int
    frozen_class_index: int
    probability: float

    @classmethod
    def of(cls, decision: Decision, index: int, frozen: Decision, frozen_index: int) -> Check:
        """From the two decisions and the classes; a decision without a probability counts as certain."""
        probability = float(decision.desired) if decision.probability is None else decision.probability
        return cls(int(decision.desired), index, int(frozen.desired), frozen_index, probability)


class Signals:
    """The last images, as far as the signals need them."""

    def __init__(self, options: GuardOptions, classes: int) -> None:
        self.options, self._classes = options, classes
        self.reset()

    def reset(self) -> None:
        # The classes of accepted images that were checked: the adapter's and the frozen model's.
        self._classes_given: deque[tuple[int, int]] = deque(maxlen=ACCEPTED[0])
        # The classes of the images that a method may have been trained on.
        self._trained_on: deque[int] = deque(maxlen=ACCEPTED[0])
        self._checks: deque[Check] = deque(maxlen=CHECKS[0])
        self._updates: deque[float] = deque(maxlen=UPDATES[0])
        self._failed: deque[int] = deque(maxlen=FAILURES)
        self._rare = False
        self._drift = self._fast = self._slow = 0.0
        self._separated = 0

    # --- what happened ------------------------------------------------------------------------------------------------
    def stepped(self, failed: bool, separation: float | None) -> None:
        """Record one image: whether its update failed, and the distance between the two means of the scores."""
        self._failed.append(int(failed))
        if separation is not None and 0 < separation < LARGEST:
            self._separated += 1
            self._fast += (separation - self._fast) * max(FAST, 1 / self._separated)
            self._slow += (separation - self._slow) * max(SLOW, 1 / self._separated)

    def trained_on(self, index: int) -> None:
        """Record the class of an accepted image, for a method that trains."""
        self._trained_on.append(index)

    def failed(self) -> None:
        """An update that was not finite, or that nothing could be seen through."""
        self._failed.append(1)

    def checked(self, check: Check, every: bool) -> None:
        """Record the comparison on one image; `every`: whether all images are compared at present."""
        if every == self._rare:  # the two kinds of checks cover different numbers of images and are not mixed
            self._checks.clear()
            self._classes_given.clear()
            self._rare = not every
        self._checks.append(check)
        if check.known:
            self._classes_given.append((check.class_index, check.frozen_class_index))

    def moved(self, step: float) -> None:
        """By how much of their length an update has moved the parameters."""
        self._updates.append(min(step, LARGEST))

    def drifted(self, drift: float) -> None:
        """How far the parameters are from the start, by their length there."""
        self._drift = min(drift, LARGEST)

    # --- what it means ------------------------------------------------------------------------------------------------
    def values(self) -> dict[str, float]:
        """All signals that have enough images, and the numbers that messages show beside them."""
        found = {"not_finite": float(sum(self._failed)), "drift": self._drift}
        if len(self._updates) >= UPDATES[1]:
            found["step"] = float(np.mean(self._updates))
        if self._separated >= 1 / FAST and self._slow:
            found["separation"] = self._fast / self._slow
        if len(self._trained_on) >= ACCEPTED[1] and self._classes > 1:
            used = effective_classes(np.bincount(list(self._trained_on), minlength=self._classes))
            found |= {
                "diversity": (used - 1) / (_usual(len(self._trained_on), self._classes) - 1),
                "classes_trained_on": used,
            }
        most, least = RARE if self._rare else ACCEPTED
        if len(self._classes_given) >= least and self._classes > 1:
            found |= _evenness(list(self._classes_given)[-most:], self._classes)
        most, least = RARE if self._rare else CHECKS
        if len(self._checks) >= least:
            found |= _compared(list(self._checks)[-most:], trains=self._rare)
            # Two small samples are never spread alike.
            if len(self._checks) >= most and "evenness" in found:
                wrong = found["disagreement"] / min(found["evenness"], 1.0) ** 3
                found["estimate"] = 1 - min(wrong, 1 - 1 / self._classes)
        return found

    def out(self, values: Mapping[str, float]) -> dict[str, float]:
        """The signals that are out of their band and lead on to the next rung."""
        limits = self.options
        low = {"evenness": limits.min_evenness, "diversity": limits.min_diversity, "estimate": limits.min_estimate}
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
        self._classes_given.clear()
        self._checks.clear()
        self._updates.clear()
        self._failed.clear()
        self._drift = 0.0

    # --- state files --------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "classes": torch.tensor(list(self._classes_given), dtype=torch.int64).reshape(-1, 2),
            "trained_on": torch.tensor(list(self._trained_on), dtype=torch.int64),
            "checks": torch.tensor([check[:4] for check in self._checks], dtype=torch.int64).reshape(-1, 4),
            "probabilities": torch.tensor([check.probability for check in self._checks], dtype=torch.float64),
            "updates": torch.tensor(list(self._updates), dtype=torch.float64),
            "failed": torch.tensor(list(self._failed), dtype=torch.int64),
            "numbers": torch.tensor(
                [self._drift, self._fast, self._slow, float(self._separated), float(self._rare)], dtype=torch.float64
            ),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("classes", "trained_on", "checks", "probabilities", "updates", "failed", "numbers"))
        sizes = {
            "classes": ACCEPTED[0],
            "trained_on": ACCEPTED[0],
            "checks": CHECKS[0],
            "updates": UPDATES[0],
            "failed": FAILURES,
        }
        count = {name: min(len(tensors[name]) if tensors[name].ndim else 0, most) for name, most in sizes.items()}
        last = self._classes - 1
        classes = stored(tensors, "classes", torch.int64, (count["classes"], 2), 0, last).tolist()
        trained_on = stored(tensors, "trained_on", torch.int64, (count["trained_on"],), 0, last).tolist()
        checks = stored(tensors, "checks", torch.int64, (count["checks"], 4), 0, max(last, 1)).tolist()
        probabilities = stored(tensors, "probabilities", torch.float64, (count["checks"],), 0, 1).tolist()
        updates = stored(tensors, "updates", torch.float64, (count["updates"],), 0, LARGEST).tolist()
        failed = stored(tensors, "failed", torch.int64, (count["failed"],), 0, 1).tolist()
        numbers = stored(tensors, "numbers", torch.float64, (5,), 0, LARGEST).tolist()
        self.reset()
        self._classes_given.extend((own, frozen) for own, frozen in classes)
        self._trained_on.extend(trained_on)
        self._checks.extend(
            Check._make((*check, probability)) for check, probability in zip(checks, probabilities, strict=True)
        )
        self._updates.extend(updates)
        self._failed.extend(failed)
        self._drift, self._fast, self._slow = numbers[:3]
        self._separated, self._rare = int(numbers[3]), bool(numbers[4])


def _compared(checks: list[Check], trains: bool) -> dict[str, float]:
    known, index, frozen_known, frozen_index, probability = np.array(checks).T
    counted = known != frozen_known if trains else known < frozen_known
    differs = counted | ((known == 1) & (frozen_known == 1) & (index != frozen_index))
    share, frozen_share = float(probability.mean()), float(frozen_known.mean())
    gap = abs(frozen_share - share) if trains else max(frozen_share - share, 0.0)
    return {"disagreement": float(differs.mean()), "gap": gap, "share": share, "frozen_share": frozen_share}


def _evenness(given: list[tuple[int, int]], classes: int) -> dict[str, float]:
    """The signal `evenness` of pairs of classes (the adapter's, the frozen model's), and the two numbers of classes."""
    own, frozen = (effective_classes(np.bincount(answers, minlength=classes)) for answers in np.array(given).T)
    smoothing = SMOOTHING * (_usual(len(given), classes) - 1)
    return {
        "evenness": (own - 1 + smoothing) / (frozen - 1 + smoothing),
        "classes_used": own,
        "frozen_classes_used": frozen,
    }


def effective_classes(counts: np.ndarray) -> float:
    """The exponential of the entropy: the number of equally frequent classes that would be as diverse.

    >>> effective_classes(np.array([40, 0, 0])), round(effective_classes(np.array([20, 20, 0])), 3)
    (1.0, 2.0)
    """
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@cache
def _usual(answers: int, classes: int) -> float:
    """The effective number of classes of so few answers if all classes are equally frequent."""
    drawn = np.random.Generator(np.random.PCG64(0)).integers(classes, size=(64, answers))
    return float(np.mean([effective_classes(np.bincount(row, minlength=classes)) for row in drawn]))
