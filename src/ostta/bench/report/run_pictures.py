"""The paper's pictures of a run, drawn from its records. Figures are made without pyplot, so nothing global is touched."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

from ...evaluate import Records
from .run_columns import RunColumns, score_limits

DESIRED, UNDESIRED, LINE = "#2563eb", "#e11d48", "#111827"
FONT = 9
# In inches: beside the table of a few runs, and as one of many.
LARGE, SMALL = (6.0, 3.6), (4.4, 3.0)
# What a picture of this size can show of a long stream.
MOST_DOTS, MOST_STEPS = 4000, 1000


class Picture(NamedTuple):
    """A PNG with its title and what it means."""

    title: str
    meaning: str
    png: bytes


def histogram(
    run: RunColumns,
    limits: tuple[float, float],
    label: str = "score",
    size: tuple[float, float] = LARGE,
) -> bytes:
    """Scores of desired and undesired images, and the last threshold."""
    figure, axes = canvas(size)
    _draw_histogram(axes, run, limits, label)
    return png(figure)


def scores_over_time(run: RunColumns, limits: tuple[float, float], size: tuple[float, float] = LARGE) -> bytes:
    """Every score where it fell in the stream, with the threshold of that moment."""
    figure, axes = canvas(size)
    steps = run.thinned(MOST_DOTS)
    labels, scores = run.labels[steps], run.scores[steps]
    for chosen, colour, name in ((labels >= 0, DESIRED, "desired"), (labels < 0, UNDESIRED, "undesired")):
        if chosen.any():
            axes.plot(steps[chosen], scores[chosen], ".", ms=2.2, alpha=0.45, color=colour, label=name)
    if np.isfinite(run.thresholds).any():
        axes.plot(steps, run.thresholds[steps], color=LINE, lw=1.2, label="threshold")
    axes.set_ylim(*limits)
    axes.set_xlabel("images seen")
    axes.set_ylabel("score")
    legend = axes.legend(frameon=True, framealpha=0.8, edgecolor="none", fontsize=FONT, loc="lower left")
    for handle in legend.legend_handles:
        # The dots of the legend are easier to see than those of the picture.
        handle.set_markersize(8)
        handle.set_alpha(1)
    return png(figure)


def accuracies_over_time(runs: dict[str, RunColumns], size: tuple[float, float] = LARGE) -> bytes:
    """Acc_D, Acc_U and HM over the images seen so far; the first run dotted, as the frozen reference, the last one solid."""
    figure, axes = canvas(size)
    _draw_accuracies(axes, runs)
    return png(figure)


def overview(runs: dict[str, Records]) -> bytes:
    """Histograms of all runs and their accuracies over time, side by side: the picture of the README."""
    shown = {name: RunColumns.of(records) for name, records in runs.items()}
    figure, panels = canvas((4.2 * (len(shown) + 1), 3.6), columns=len(shown) + 1)
    for axes, (name, run) in zip(panels, shown.items(), strict=False):
        # Limits of their own: the runs may have scores of different kinds.
        _draw_histogram(axes, run, score_limits([run]), "score")
        axes.set_title(f"{name}: scores", fontsize=FONT + 1)
    _draw_accuracies(panels[-1], shown)
    panels[-1].set_title("accuracies over the stream", fontsize=FONT + 1)
    top = max(axes.get_ylim()[1] for axes in panels[:-1])
    for axes in panels[:-1]:
        axes.set_ylim(0, top)
    return png(figure)


def _draw_histogram(axes: Any, run: RunColumns, limits: tuple[float, float], label: str) -> None:
    bins = np.linspace(*limits, 60).tolist()
    desired = run.labels >= 0
    for chosen, colour, alpha, name in ((desired, DESIRED, 0.65, "desired"), (~desired, UNDESIRED, 0.6, "undesired")):
        if chosen.any():
            axes.hist(run.scores[chosen], bins, color=colour, alpha=alpha, label=name)
    if np.isfinite(run.thresholds[-1]):
        axes.axvline(run.thresholds[-1], ymax=0.88, color=LINE, lw=1.2, ls="--", label="last threshold")
    axes.set_xlabel(label)
    axes.set_ylabel("images")
    # Room above the bars, so that the legend hides none.
    axes.set_ylim(0, 1.17 * axes.get_ylim()[1])
    axes.legend(
        frameon=False,
        fontsize=FONT - 0.5,
        loc="upper center",
        ncols=3,
        columnspacing=1.2,
        handlelength=1.6,
        borderaxespad=0,
    )


def _draw_accuracies(axes: Any, runs: dict[str, RunColumns]) -> None:
    colours = {"Acc_D": DESIRED, "Acc_U": UNDESIRED, "HM": LINE}
    for number, (name, run) in enumerate(runs.items()):
        steps = run.thinned(MOST_STEPS)
        for curve, values in run.cumulative().items():
            style = "-" if number == len(runs) - 1 else ":" if number == 0 else "--"
            axes.plot(steps, values[steps], style, lw=1.4, color=colours[curve], label=f"{curve} {name}")
    axes.set_ylim(0, 102)
    axes.set_xlabel("images seen")
    axes.set_ylabel("percent, so far")
    axes.legend(
        frameon=False, fontsize=FONT - 2, ncols=len(runs), loc="lower right", columnspacing=0.8, handlelength=1.4
    )


def canvas(size: tuple[float, float] = LARGE, columns: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, without the frame's upper and right side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, columns)
    for part in np.atleast_1d(axes):
        part.spines[["top", "right"]].set_visible(False)
        part.tick_params(labelsize=FONT)
    return figure, axes


def png(figure: Any) -> bytes:
    """The figure as a file's bytes."""
    buffer = io.BytesIO()
    # No date and no version inside: the same run gives the same bytes.
    figure.savefig(buffer, format="png", dpi=140, metadata={"Software": None})
    return buffer.getvalue()
