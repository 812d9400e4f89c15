"""Counters of all sessions of a process, for `/metrics`."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.types import Prediction


@dataclass(slots=True)
class Figures:
    """Images that wait now, and totals since the start of the process."""

    waiting: int = 0
    judged: int = 0
    undecided: int = 0
    with_probability: int = 0
    probability_sum: float = 0.0
    guard_events: int = 0
    saves: int = 0
    save_failures: int = 0
    # Stored sessions that could not be restored.
    unreadable: int = 0

    def add(self, prediction: Prediction) -> None:
        """Count an image that was judged with learning."""
        self.judged += 1
        self.undecided += prediction.undecided
        if prediction.probability is not None:
            self.with_probability += 1
            self.probability_sum += prediction.probability
        self.guard_events += len(prediction.events)

    def to_json(self) -> dict[str, float]:
        return {
            "sessions_unreadable": self.unreadable,
            "images_waiting": self.waiting,
            "images_judged_total": self.judged,
            "images_undecided_total": self.undecided,
            "images_with_probability_total": self.with_probability,
            "probability_sum_total": self.probability_sum,
            "guard_events_total": self.guard_events,
            "saves_total": self.saves,
            "save_failures_total": self.save_failures,
        }
