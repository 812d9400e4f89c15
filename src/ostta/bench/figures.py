"""The paper's pictures of a run, drawn from its records. Figures are made without pyplot, so nothing global is touched."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..evaluate import Records

DESIRED, UNDESIRED, LINE = "#2563eb", "#e11d48", "#111827"
FONT = 9


def histogram(records: Records, limits: tuple[float, float]) -> bytes:
    """Scores of desired and undesired images, and the last threshold."""
    figure, axes = _figure()
    _draw_histogram(axes, records, limits)
    return _png(figure)


def scores_over_time(records: Records, limits: tuple[float, float]) -> bytes:
    """Every score where it fell in the stream, with the threshold of that moment."""
    figure, axes = _figure()
    labels, scores = records.labels, records.scores()
    steps = np.arange(len(labels))
    for chosen, colour, name in ((labels >= 0, DESIRED, "desired"), (labels < 0, UNDESIRED, "undesired")):
        axes.plot(steps[chosen], scores[chosen], ".", ms=2.2, alpha=0.45, color=colour, label=name)
    axes.plot(steps, records.column("threshold"), color=LINE, lw=1.2, label="threshold")
    axes.set_ylim(*limits)
    axes.set_xlabel("images seen")
    axes.set_ylabel("score")
    axes.legend(frameon=False, fontsize=FONT, markerscale=4, loc="lower left")
    return _png(figure)


def accuracies_over_time(runs: dict[str, Records]) -> bytes:
    """Acc_D, Acc_U and HM over the images seen so far; the first run dotted, as the frozen reference."""
    figure, axes = _figure()
    _draw_accuracies(axes, runs)
    return _png(figure)


def overview(runs: dict[str, Records]) -> bytes:
    """Histograms of all runs and their accuracies over time, side by side: the picture of the README."""
    figure, panels = _figure(columns=len(runs) + 1)
    limits = score_limits(list(runs.values()))
    for axes, (name, records) in zip(panels, runs.items(), strict=False):
        _draw_histogram(axes, records, limits)
        axes.set_title(f"{name}: scores", fontsize=FONT + 1)
    _draw_accuracies(panels[-1], runs)
    panels[-1].set_title("accuracies over the stream", fontsize=FONT + 1)
    top = max(axes.get_ylim()[1] for axes in panels[:-1])
    for axes in panels[:-1]:
        axes.set_ylim(0, top)
    return _png(figure)


def _draw_histogram(axes: Any, records: Records, limits: tuple[float, float]) -> None:
    labels, scores = records.labels, records.scores()
    bins = np.linspace(*limits, 60).tolist()
    axes.hist(scores[labels >= 0], bins, color=DESIRED, alpha=0.65, label="desired")
    axes.hist(scores[labels < 0], bins, color=UNDESIRED, alpha=0.6, label="undesired")
    thresholds = records.column("threshold")
    if np.isfinite(thresholds[-1]):
        axes.axvline(thresholds[-1], color=LINE, lw=1.2, ls="--", label="last threshold")
    axes.set_xlabel("score: cosine to the best class")
    axes.set_ylabel("images")
    axes.legend(frameon=False, fontsize=FONT)


def _draw_accuracies(axes: Any, runs: dict[str, Records]) -> None:
    colours = {"Acc_D": DESIRED, "Acc_U": UNDESIRED, "HM": LINE}
    for number, (name, records) in enumerate(runs.items()):
        for curve, values in cumulative(records).items():
            style = ":" if number == 0 and len(runs) > 1 else "-"
            axes.plot(values, style, lw=1.4, color=colours[curve], label=f"{curve} {name}")
    axes.set_ylim(0, 102)
    axes.set_xlabel("images seen")
    axes.set_ylabel("percent, so far")
    axes.legend(frameon=False, fontsize=FONT - 1, ncols=len(runs), loc="lower right")


def cumulative(records: Records) -> dict[str, NDArray[np.float64]]:
    """The running accuracies; NaN until both sides have been seen."""
    labels, known = records.labels, records.column("known")
    desired = labels >= 0
    right = known & (records.column("index") == labels)
    with np.errstate(divide="ignore", invalid="ignore"):
        acc_d = 100 * np.cumsum(right & desired) / np.cumsum(desired)
        acc_u = 100 * np.cumsum(~known & ~desired) / np.cumsum(~desired)
        hm = np.where(
            acc_d + acc_u > 0, 2 * acc_d * acc_u / (acc_d + acc_u), np.where(np.isnan(acc_d + acc_u), np.nan, 0.0)
        )
    return {"Acc_D": acc_d, "Acc_U": acc_u, "HM": hm}


def score_limits(runs: list[Records]) -> tuple[float, float]:
    """One range for all pictures, so that they can be compared by eye."""
    scores = np.concatenate([records.scores() for records in runs])
    low, high = float(scores.min()), float(scores.max())
    margin = 0.03 * (high - low) or 0.01
    return low - margin, high + margin


def _figure(columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 if columns == 1 else 4.2 * columns, 3.6), layout="constrained")
    axes = figure.subplots(1, columns)
    for part in np.atleast_1d(axes):
        part.spines[["top", "right"]].set_visible(False)
        part.tick_params(labelsize=FONT)
    return figure, axes


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    # No date and no version inside: the same run gives the same bytes.
    figure.savefig(buffer, format="png", dpi=140, metadata={"Software": None})
    return buffer.getvalue()
