"""The paper's pictures of a run, drawn from its records."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...pages import Axis, Chart, Key
from .run_columns import RunColumns

BINS = 50
# What a chart of this size can show of a long stream.
MOST_DOTS, MOST_STEPS = 500, 160
CURVES = {"Acc_D": "known", "Acc_U": "unknown", "HM": "hm"}
SCORES_KEY = Key([("known", "desired"), ("unknown", "undesired"), ("rule dashed", "threshold")])
ACCURACIES_KEY = Key(
    [
        ("rule known", "Acc_D"),
        ("rule unknown", "Acc_U"),
        ("rule", "HM"),
        ("rule dotted", "the same of the frozen classifier"),
    ]
)

Limits = tuple[float, float]


def histogram_peak(runs: list[RunColumns], limits: Limits) -> int:
    """The highest bar of all runs, so that their charts have one scale."""
    return max(int(counts.max()) for run in runs for counts in _counts(run, limits))


def histogram(run: RunColumns, limits: Limits, peak: int, about: str) -> str:
    """Scores of desired and undesired images, and the last threshold."""
    chart = Chart(Axis(*limits, "score"), Axis(0, 1.05 * max(1, peak)), height=150)
    edges = np.linspace(*limits, BINS + 1).tolist()
    for counts, style in zip(_counts(run, limits), ("known", "unknown"), strict=True):
        if counts.any():
            chart.bars(edges, counts.tolist(), style)
    if np.isfinite(run.thresholds[-1]):
        chart.upright(float(run.thresholds[-1]), "threshold")
    return chart.svg(f"{about}: how many images have each score, desired and undesired ones")


def scores_over_time(run: RunColumns, limits: Limits, about: str) -> str:
    """Scores where they fell in the stream, with the threshold of that moment."""
    chart = Chart(_images(len(run)), Axis(*limits), height=150)
    steps = run.thinned(MOST_DOTS)
    labels, scores = run.labels[steps], run.scores[steps]
    for chosen, style in ((labels >= 0, "known"), (labels < 0, "unknown")):
        chart.dots(zip(steps[chosen].tolist(), scores[chosen].tolist(), strict=True), style)
    lines = run.thinned(MOST_STEPS)
    chart.line(zip(lines.tolist(), run.thresholds[lines].tolist(), strict=True), "threshold")
    return chart.svg(f"{about}: the score of each image when it came, and the threshold of that moment")


def accuracies_over_time(runs: Mapping[str, RunColumns], about: str, height: int = 150) -> str:
    """Acc_D, Acc_U and HM over the images seen so far; the first of several runs dotted, as the frozen reference, the last one solid."""
    longest = max(len(run) for run in runs.values())
    chart = Chart(_images(longest), Axis(0, 100), height=height)
    for number, run in enumerate(runs.values()):
        steps = run.thinned(MOST_STEPS)
        kind = "" if number == len(runs) - 1 else " frozen" if number == 0 else " other"
        for curve, values in run.cumulative().items():
            chart.line(zip(steps.tolist(), values[steps].tolist(), strict=True), CURVES[curve] + kind)
    return chart.svg(f"{about}: percent right over the images seen so far")


def _images(count: int) -> Axis:
    marks = [(number, f"{number:,}") for number in sorted({0, count // 2, count})]
    return Axis(0, max(1, count), "images seen", marks)


def _counts(run: RunColumns, limits: Limits) -> list[NDArray[np.int64]]:
    edges = np.linspace(*limits, BINS + 1)
    return [np.histogram(run.scores[chosen], edges)[0] for chosen in (run.labels >= 0, run.labels < 0)]
