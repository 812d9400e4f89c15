"""The evidence for a difference between two rows: over images (and seeds) if both kept records, else over seeds that draw images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...evaluation.intervals import Interval, Values, interval
from ...evaluation.significance import ALPHA, holm, over_images, over_seeds
from ..result import Result
from .paired import PairedDifferences

Over = Literal["images", "images and seeds", "seeds"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The 95 % interval of one difference, its p-value, and what was drawn for them.

    images: how many different ones the interval is over, and changed: on how many of them the two rows differ; 0 where it is over
    seeds. resampled: one row a seed, for means over streams. seeds: which ones.
    """

    interval: Interval
    chance: float
    over: Over
    images: int = 0
    changed: int = 0
    resampled: Values | None = None
    seeds: tuple[int, ...] = ()


def evidence(
    paired: PairedDifferences,
    ours: Mapping[int, Result],
    theirs: Mapping[int, Result],
    metric: str,
    differences: Mapping[int, float],
) -> Evidence | None:
    """Of `metric`, whose `differences` seed by seed are given; None where no interval can be had."""
    first, second = ([side[seed] for seed in differences] for side in (ours, theirs))
    found = paired.difference(first, second, metric)
    if found is not None:
        made = of_resampled(found.resampled, found.changed, found.images, tuple(differences))
        if made is not None:
            return made
    # Seeds that order the same images anew say nothing about other images.
    if all(ours[seed].spec.draw == theirs[seed].spec.draw == "images" for seed in differences):
        seeds = over_seeds(list(differences.values()))
        return None if seeds is None else Evidence(*seeds, over="seeds")
    return None


def of_resampled(resampled: Values, changed: int, images: int, seeds: tuple[int, ...] = ()) -> Evidence | None:
    """None where too few resamples have the figure. `resampled` may have one row for each of the `seeds`."""
    found = interval(resampled)
    if not math.isfinite(found.low):
        return None
    over: Over = "images and seeds" if len(np.atleast_2d(resampled)) > 1 else "images"
    return Evidence(found, over_images(resampled, changed), over, images, changed, resampled, seeds)


def told_apart(family: Sequence[Evidence]) -> list[bool]:
    """Which of several differences may be marked: the interval excludes zero, and the chance is small by Holm's correction."""
    corrected = holm([each.chance for each in family])
    return [each.interval.excludes_zero and chance < ALPHA for each, chance in zip(family, corrected, strict=True)]
