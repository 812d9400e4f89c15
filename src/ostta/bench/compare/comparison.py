"""The comparison itself: figures of B minus those of A with their paired intervals, and what changed image by image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core.types import Error
from ...evaluation.intervals import OF_SCORES, Outcomes, Resampling
from ...evaluation.metrics import mean
from ..tables.evidence import Evidence, of_resampled, told_apart
from ..tables.metric_values import metric_value
from ..tables.paired import read_outcomes
from .settings import Setting, common, settings
from .sides import Filed, Pair, Sides

COMPARED = ("hm", "acc_desired", "acc_undesired", "auroc", "fpr95", "accuracy")


@dataclass(frozen=True)
class Compared:
    """One metric: of A, of B, the difference, and its paired 95 % interval; marked where it excludes zero, also by Holm's correction."""

    metric: str
    first: float | None
    second: float | None
    difference: float | None
    low: float | None = None
    high: float | None = None
    marked: bool = False


@dataclass(frozen=True)
class Changes:
    """How many images changed sides, over all seeds: `shown` is how often an image was shown."""

    shown: int
    wrong_to_right: int
    right_to_wrong: int
    accepted_to_rejected: int
    rejected_to_accepted: int
    other_class: int


@dataclass(frozen=True)
class ComparedPair:
    """One pair. `changes` is None, and no figure has an interval, where `why_not` says why."""

    pair: Pair
    settings: tuple[Setting, ...]
    figures: tuple[Compared, ...]
    changes: Changes | None
    images: int
    why_not: str = ""


@dataclass(frozen=True)
class Comparison:
    """All pairs of two results or folders; `common` is what differs in all of them alike."""

    sides: Sides
    common: tuple[Setting, ...]
    pairs: tuple[ComparedPair, ...]

    @property
    def intervals(self) -> int:
        return sum(figure.low is not None for each in self.pairs for figure in each.figures)


def compare(sides: Sides) -> Comparison:
    """Read the records of both sides, as far as they are there."""
    compared, found = [], list[tuple[int, int, Evidence]]()
    for number, pair in enumerate(sides.pairs):
        outcomes, why_not = _outcomes(pair)
        figures = [_figure(pair, metric) for metric in COMPARED]
        if outcomes is not None:
            drawn = Resampling(outcomes[0])
            for place, figure in enumerate(figures):
                made = _evidence(pair, drawn, outcomes, figure.metric) if figure.difference is not None else None
                if made is not None:
                    found.append((number, place, made))
        images = len({image for run in outcomes[0] for image in run.images}) if outcomes is not None else 0
        changes = None if outcomes is None else changes_of(*outcomes)
        compared.append(ComparedPair(pair, tuple(settings(pair)), tuple(figures), changes, images, why_not))
    for (number, place, made), marked in zip(found, told_apart([each for _, _, each in found]), strict=True):
        figures = list(compared[number].figures)
        bounds = made.interval
        figures[place] = replace(figures[place], low=bounds.low, high=bounds.high, marked=marked)
        compared[number] = replace(compared[number], figures=tuple(figures))
    return Comparison(sides, tuple(common(list(each.settings) for each in compared)), tuple(compared))


def changes_of(first: Sequence[Outcomes], second: Sequence[Outcomes]) -> Changes:
    """One run a seed on each side, in the order of the stream."""
    counts = np.zeros(6, np.int64)
    for one, other in zip(first, second, strict=True):
        right = [_right(run) for run in (one, other)]
        both = one.accepted & other.accepted
        counts += [
            len(one.labels),
            (~right[0] & right[1]).sum(),
            (right[0] & ~right[1]).sum(),
            (one.accepted & ~other.accepted).sum(),
            (~one.accepted & other.accepted).sum(),
            (both & (one.index != other.index)).sum(),
        ]
    return Changes(*map(int, counts))


def _right(run: Outcomes) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.where(run.labels >= 0, run.accepted & (run.index == run.labels), ~run.accepted)


def _figure(pair: Pair, metric: str) -> Compared:
    first, second = (mean([metric_value(each.result, metric) for each in side]) for side in (pair.first, pair.second))
    return Compared(metric, first, second, None if first is None or second is None else second - first)


def _outcomes(pair: Pair) -> tuple[tuple[list[Outcomes], list[Outcomes]] | None, str]:
    """What both sides said, image by image; or why that cannot be had."""
    for one, other in zip(pair.first, pair.second, strict=True):
        if one.result.stream_identity != other.result.stream_identity:
            return (
                None,
                "The two runs were not on the same stream: there are no paired intervals, and no images to compare.",
            )
        without = next((filed for filed in (one, other) if filed.records is None), None)
        if without is not None:
            return (
                None,
                f"{without.path.name} kept no records: there are no paired intervals, and no images to compare.",
            )
    try:
        first, second = ([_read(filed) for filed in side] for side in (pair.first, pair.second))
    except Error as problem:
        return None, str(problem)
    if any(one.images != other.images for one, other in zip(first, second, strict=True)):
        return None, "The records of the two sides are of different images, although the streams have one hash."
    return (first, second), ""


def _read(filed: Filed) -> Outcomes:
    assert filed.records is not None
    return read_outcomes(filed.records)


def _evidence(
    pair: Pair, drawn: Resampling, outcomes: tuple[list[Outcomes], list[Outcomes]], metric: str
) -> Evidence | None:
    # The HM of a continual stream is the mean of its domains'.
    by_domain = metric == "hm" and pair.first[0].result.spec.scenario.kind == "continual"
    first, second = (drawn.values_by_run(side, metric, by_domain=by_domain) for side in outcomes)
    changed = {
        image
        for one, other in zip(*outcomes, strict=True)
        for image, differs in zip(one.images, _said(one, metric) != _said(other, metric), strict=True)
        if differs
    }
    images = len({image for run in outcomes[0] for image in run.images})
    differences = second - first
    return of_resampled(differences, len(changed), images) if np.isfinite(differences[:, 0]).all() else None


def _said(run: Outcomes, metric: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """What of a run's answers the metric depends on."""
    if metric in OF_SCORES:
        return run.scores
    return np.asarray(run.index if metric == "accuracy" else np.where(run.accepted, run.index, -1), np.float64)
