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
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.checks import MOST_STEPS, require_intact, require_names, stored, stored_length
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
# Records that each signal is computed from.
RECORDS_OF = {
    "evenness": ("classes",),
    "diversity": ("trained_on",),
    "disagreement": ("checks",),
    "gap": ("checks",),
    "estimate": ("checks", "classes"),
    "step": ("updates",),
    "drift": ("drift",),
    "not_finite": ("failed",),
}
Records = NDArray[np.float64]


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
    """The records of recent images that the signals need. The first number of each record is its step.

    classes:     classes of accepted images that were compared, from the adapter and from the frozen model.
    trained_on:  classes of images that a method may have been trained on.
    checks:      comparisons with the frozen model.
    updates:     relative changes of the parameters.
    drift:       the last distance of the parameters from their initial values.
    failed:      whether updates failed.
    """

    def __init__(self, options: GuardOptions, classes: int) -> None:
        self.options, self._classes = options, classes
        last = classes - 1
        # Largest number of records, and largest value of each number after the step.
        self._limits: dict[str, tuple[int, tuple[float, ...]]] = {
            "classes": (ACCEPTED[0], (last, last)),
            "trained_on": (ACCEPTED[0], (last,)),
            "checks": (CHECKS[0], (1, last, 1, last, 1)),
            "updates": (UPDATES[0], (LARGEST,)),
            "drift": (1, (LARGEST,)),
            "failed": (FAILURES, (1,)),
        }
        self.reset()

    def reset(self) -> None:
        self._records = {name: deque[tuple[float, ...]](maxlen=most) for name, (most, _) in self._limits.items()}
        self._rare = False
        self._fast = self._slow = 0.0
        self._separated = 0

    # --- recording ---------------------------------------------------------------------------------------------------
    def stepped(self, step: int, failed: bool, separation: float | None = None) -> None:
        """Record one image: whether its update failed, and the distance between the two means of the scores."""
        self._records["failed"].append((step, failed))
        if separation is not None and 0 < separation < LARGEST:
            self._separated += 1
            self._fast += (separation - self._fast) * max(FAST, 1 / self._separated)
            self._slow += (separation - self._slow) * max(SLOW, 1 / self._separated)

    def trained_on(self, step: int, index: int) -> None:
        """Record the class of an accepted image, for a method that trains."""
        self._records["trained_on"].append((step, index))

    def checked(self, step: int, check: Check, every: bool) -> None:
        """Record the comparison on one image. `every` is whether all images are currently compared."""
        if every == self._rare:  # the two modes cover different numbers of images, so they are not mixed
            self._records["checks"].clear()
            self._records["classes"].clear()
            self._rare = not every
        self._records["checks"].append((step, *check))
        if check.known:
            self._records["classes"].append((step, check.class_index, check.frozen_class_index))

    def moved(self, step: int, distance: float) -> None:
        """Record the change of the parameters by an update, relative to their norm."""
        self._records["updates"].append((step, min(distance, LARGEST)))

    def drifted(self, step: int, distance: float) -> None:
        """Record the distance of the parameters from their initial values, relative to the norm of these values."""
        self._records["drift"].append((step, min(distance, LARGEST)))

    # --- signals -----------------------------------------------------------------------------------------------------
    def first_step(self, signals: Iterable[str] = RECORDS_OF) -> float:
        """Return the step of the first image that one of `signals` covers; infinity if there is none."""
        recent = [self._recent(name) for signal in signals for name in RECORDS_OF[signal]]
        return min((float(records[0, 0]) for records in recent if len(records)), default=np.inf)

    def values(self) -> dict[str, float]:
        """Return the signals that have enough images, and further numbers for messages."""
        recent = {name: self._recent(name)[:, 1:] for name in self._records}
        values = {"not_finite": float(recent["failed"].sum()), "drift": float(recent["drift"].sum())}
        if len(recent["updates"]) >= UPDATES[1]:
            values["step"] = float(recent["updates"].mean())
        if self._separated >= 1 / FAST and self._slow:
            values["separation"] = self._fast / self._slow
        trained_on = recent["trained_on"]
        if len(trained_on) >= ACCEPTED[1] and self._classes > 1:
            used = effective_classes(self._counts(trained_on[:, 0]))
            values["diversity"] = (used - 1) / (_usual(len(trained_on), self._classes) - 1)
            values["classes_trained_on"] = used
        minimum = (RARE if self._rare else ACCEPTED)[1]
        if len(recent["classes"]) >= minimum and self._classes > 1:
            values |= self._evenness(recent["classes"])
        window, minimum = RARE if self._rare else CHECKS
        if len(recent["checks"]) >= minimum:
            values |= _compared(recent["checks"], trains=self._rare)
            # The evenness of two small samples is unreliable.
            if len(recent["checks"]) >= window and "evenness" in values:
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
        """Clear the records of a state that was undone, because they do not describe the restored state."""
        for name, records in self._records.items():
            if name != "trained_on":
                records.clear()

    def _recent(self, name: str) -> Records:
        """Return the records [N, 1 + numbers] that the signals use."""
        most, numbers = self._limits[name]
        if self._rare and name in ("classes", "checks"):
            most = RARE[0]
        return np.array(list(self._records[name])[-most:], np.float64).reshape(-1, 1 + len(numbers))

    def _counts(self, classes: Records) -> NDArray[np.int64]:
        return np.bincount(classes.astype(np.int64), minlength=self._classes)

    def _evenness(self, given: Records) -> dict[str, float]:
        """Return the evenness of pairs of classes (adapter, frozen model), and the two effective numbers of classes."""
        own, frozen = (effective_classes(self._counts(classes)) for classes in given.T)
        smoothing = SMOOTHING * (_usual(len(given), self._classes) - 1)
        return {
            "evenness": (own - 1 + smoothing) / (frozen - 1 + smoothing),
            "classes_used": own,
            "frozen_classes_used": frozen,
        }

    # --- state files --------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        numbers = (self._fast, self._slow, self._separated, self._rare)
        return {"numbers": torch.tensor(numbers, dtype=torch.float64)} | {
            name: torch.tensor(list(records), dtype=torch.float64).reshape(-1, 1 + len(self._limits[name][1]))
            for name, records in self._records.items()
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("numbers", *self._limits))
        fast, slow, separated, rare = stored(tensors, "numbers", torch.float64, (4,), 0, LARGEST).tolist()
        loaded = {}
        for name, (most, largest) in self._limits.items():
            shape = (stored_length(tensors, name, most), 1 + len(largest))
            records = stored(tensors, name, torch.float64, shape, 0, LARGEST)
            limits = torch.tensor((MOST_STEPS, *largest), dtype=torch.float64)
            require_intact((records <= limits).all(), f"list {name!r} of the guard", "a number is out of range")
            loaded[name] = records.tolist()
        self.reset()
        for name, rows in loaded.items():
            self._records[name].extend(map(tuple, rows))
        self._fast, self._slow, self._separated, self._rare = fast, slow, int(separated), bool(rare)


def _compared(checks: Records, trains: bool) -> dict[str, float]:
    known, index, frozen_known, frozen_index, probability = checks.T
    counted = known != frozen_known if trains else known < frozen_known
    differs = counted | ((known == 1) & (frozen_known == 1) & (index != frozen_index))
    share, frozen_share = float(probability.mean()), float(frozen_known.mean())
    gap = abs(frozen_share - share) if trains else max(frozen_share - share, 0.0)
    return {"disagreement": float(differs.mean()), "gap": gap, "share": share, "frozen_share": frozen_share}


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
