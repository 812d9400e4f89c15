"""Signals without labels: statistics of recent images, each with a band that an ordinary stream does not leave.

evenness      effective number of classes among the accepted images, relative to that of the frozen model on the same
              images: ((n - 1) + s) / ((n_frozen - 1) + s), where n = exp(entropy of the classes) and s is a tenth of
              n - 1 for equally frequent classes. A stream with few classes stays in the band
diversity     for a method that trains: n - 1 of its accepted images, relative to its value for equally frequent
              classes. The guard only skips updates, because training on few classes harms the other classes
disagreement  share of images with another verdict or another class from the frozen model
gap           difference between the shares of images accepted by the adapter and by the frozen model. A decision with a
              probability counts by its probability
estimate      1 - disagreement / min(evenness, 1)^3: AETTA's estimate of the accuracy, with the frozen model instead of
              dropout
step, drift   mean change of the parameters by recent updates, and their distance from the initial values, relative to
              the norm of the parameters before the update or at the start
separation    distance between the two mean scores, relative to its usual value
not_finite    number of recent updates that were discarded because a value was not finite

Undecided images are not compared. If nothing is trained, an image that only the frozen model rejects counts neither as
disagreement nor in the gap, because on a stream with few unknown images the LDA of the frozen model rejects half of the
known images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from ..core.checks import require_names, stored, stored_length
from ..core.types import Decision
from .options import GuardOptions

# Window and minimum number of images of each signal. RARE replaces both ACCEPTED and CHECKS if only some images are
# compared.
ACCEPTED, CHECKS, RARE, UPDATES, FAILURES = (96, 32), (128, 48), (24, 12), (16, 4), 64
# Number of failed updates in the window at which `not_finite` leaves its band.
NOT_FINITE = 3
# Weights of the newest image in the moving averages of the recent and of the usual distance between the means.
FAST, SLOW = 1 / 32, 1 / 512
# Factor of `s` in the definition of evenness. Without `s`, the ratio of two small numbers would be mostly noise.
SMOOTHING = 0.1
LARGEST = 1e30


class Check(NamedTuple):
    """Decisions of the adapter and of the frozen model on one image; `probability` is that of the adapter."""

    known: int
    class_index: int
    frozen_known: int
    frozen_class_index: int
    probability: float

    @classmethod
    def of(cls, decision: Decision, index: int, frozen: Decision, frozen_index: int) -> Check:
        """Return the check for two decisions and classes; a decision without a probability counts as certain."""
        probability = float(decision.desired) if decision.probability is None else decision.probability
        return cls(int(decision.desired), index, int(frozen.desired), frozen_index, probability)


class Signals:
    """The statistics of recent images that the signals need."""

    def __init__(self, options: GuardOptions, classes: int) -> None:
        self.options, self._classes = options, classes
        self.reset()

    def reset(self) -> None:
        # Classes of accepted images that were compared, from the adapter and from the frozen model.
        self._classes_given: deque[tuple[int, int]] = deque(maxlen=ACCEPTED[0])
        # Classes of images that a method may have been trained on.
        self._trained_on: deque[int] = deque(maxlen=ACCEPTED[0])
        self._checks: deque[Check] = deque(maxlen=CHECKS[0])
        self._updates: deque[float] = deque(maxlen=UPDATES[0])
        self._failed: deque[int] = deque(maxlen=FAILURES)
        self._rare = False
        self._drift = self._fast = self._slow = 0.0
        self._separated = 0

    # --- recording ---------------------------------------------------------------------------------------------------
    def stepped(self, failed: bool, separation: float | None = None) -> None:
        """Record one image: whether its update failed, and the distance between the two means of the scores."""
        self._failed.append(int(failed))
        if separation is not None and 0 < separation < LARGEST:
            self._separated += 1
            self._fast += (separation - self._fast) * max(FAST, 1 / self._separated)
            self._slow += (separation - self._slow) * max(SLOW, 1 / self._separated)

    def trained_on(self, index: int) -> None:
        """Record the class of an accepted image, for a method that trains."""
        self._trained_on.append(index)

    def checked(self, check: Check, every: bool) -> None:
        """Record the comparison on one image. `every` is whether all images are currently compared."""
        if every == self._rare:  # the two modes cover different numbers of images, so they are not mixed
            self._checks.clear()
            self._classes_given.clear()
            self._rare = not every
        self._checks.append(check)
        if check.known:
            self._classes_given.append((check.class_index, check.frozen_class_index))

    def moved(self, step: float) -> None:
        """Record the change of the parameters by an update, relative to their norm."""
        self._updates.append(min(step, LARGEST))

    def drifted(self, drift: float) -> None:
        """Record the distance of the parameters from their initial values, relative to the norm of these values."""
        self._drift = min(drift, LARGEST)

    # --- signals -----------------------------------------------------------------------------------------------------
    def values(self) -> dict[str, float]:
        """Return the signals that have enough images, and further numbers for messages."""
        values = {"not_finite": float(sum(self._failed)), "drift": self._drift}
        if len(self._updates) >= UPDATES[1]:
            values["step"] = float(np.mean(self._updates))
        if self._separated >= 1 / FAST and self._slow:
            values["separation"] = self._fast / self._slow
        if len(self._trained_on) >= ACCEPTED[1] and self._classes > 1:
            used = effective_classes(np.bincount(list(self._trained_on), minlength=self._classes))
            values["diversity"] = (used - 1) / (_usual(len(self._trained_on), self._classes) - 1)
            values["classes_trained_on"] = used
        window, minimum = RARE if self._rare else ACCEPTED
        if len(self._classes_given) >= minimum and self._classes > 1:
            values |= _evenness(list(self._classes_given)[-window:], self._classes)
        window, minimum = RARE if self._rare else CHECKS
        if len(self._checks) >= minimum:
            values |= _compared(list(self._checks)[-window:], trains=self._rare)
            # The evenness of two small samples is unreliable.
            if len(self._checks) >= window and "evenness" in values:
                wrong = values["disagreement"] / min(values["evenness"], 1.0) ** 3
                values["estimate"] = 1 - min(wrong, 1 - 1 / self._classes)
        return values

    def out(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the signals that are out of their band."""
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
            if value < low.get(name, -np.inf) or value > high.get(name, np.inf)
        }

    def forget(self) -> None:
        """Clear the statistics of a state that was undone, because they do not describe the restored state."""
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
        count = {name: stored_length(tensors, name, most) for name, most in sizes.items()}
        last = self._classes - 1
        classes = stored(tensors, "classes", torch.int64, (count["classes"], 2), 0, last).tolist()
        trained_on = stored(tensors, "trained_on", torch.int64, (count["trained_on"],), 0, last).tolist()
        checks = stored(tensors, "checks", torch.int64, (count["checks"], 4), 0, max(last, 1)).tolist()
        probabilities = stored(tensors, "probabilities", torch.float64, (count["checks"],), 0, 1).tolist()
        updates = stored(tensors, "updates", torch.float64, (count["updates"],), 0, LARGEST).tolist()
        failed = stored(tensors, "failed", torch.int64, (count["failed"],), 0, 1).tolist()
        drift, fast, slow, separated, rare = stored(tensors, "numbers", torch.float64, (5,), 0, LARGEST).tolist()
        self.reset()
        self._classes_given.extend((own, frozen) for own, frozen in classes)
        self._trained_on.extend(trained_on)
        self._checks.extend(
            Check._make((*check, probability)) for check, probability in zip(checks, probabilities, strict=True)
        )
        self._updates.extend(updates)
        self._failed.extend(failed)
        self._drift, self._fast, self._slow = drift, fast, slow
        self._separated, self._rare = int(separated), bool(rare)


def _compared(checks: list[Check], trains: bool) -> dict[str, float]:
    known, index, frozen_known, frozen_index, probability = np.array(checks).T
    counted = known != frozen_known if trains else known < frozen_known
    differs = counted | ((known == 1) & (frozen_known == 1) & (index != frozen_index))
    share, frozen_share = float(probability.mean()), float(frozen_known.mean())
    gap = abs(frozen_share - share) if trains else max(frozen_share - share, 0.0)
    return {"disagreement": float(differs.mean()), "gap": gap, "share": share, "frozen_share": frozen_share}


def _evenness(given: list[tuple[int, int]], classes: int) -> dict[str, float]:
    """Return the evenness of pairs of classes (adapter, frozen model), and the two effective numbers of classes."""
    own, frozen = (effective_classes(np.bincount(answers, minlength=classes)) for answers in np.array(given).T)
    smoothing = SMOOTHING * (_usual(len(given), classes) - 1)
    return {
        "evenness": (own - 1 + smoothing) / (frozen - 1 + smoothing),
        "classes_used": own,
        "frozen_classes_used": frozen,
    }


def effective_classes(counts: np.ndarray) -> float:
    """Return the effective number of classes: the exponential of the entropy of their frequencies.

    >>> effective_classes(np.array([40, 0, 0])), round(effective_classes(np.array([20, 20, 0])), 3)
    (1.0, 2.0)
    """
    shares = counts[counts > 0] / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@cache
def _usual(answers: int, classes: int) -> float:
    """Return the expected effective number of classes of `answers` draws from equally frequent classes."""
    drawn = np.random.Generator(np.random.PCG64(0)).integers(classes, size=(64, answers))
    return float(np.mean([effective_classes(np.bincount(row, minlength=classes)) for row in drawn]))
