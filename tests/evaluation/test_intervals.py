"""Paired bootstrap intervals: cases with a known answer, and how often simulated truth lies inside."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from helpers.errors import raises
from ostta.evaluation import metrics
from ostta.evaluation.intervals import (
    METRICS,
    Interval,
    Outcomes,
    Resampling,
    SeedSpread,
    interval,
    paired_difference,
)
from ostta.evaluation.metrics import OF_SCORES


def simulated(seed: int, desired: int = 150, undesired: int = 150, shift: float = 0.0, first: int = 0) -> Outcomes:
    """Scores of two overlapping hills; `shift` moves those of desired images. Images are numbered from `first`."""
    chance = np.random.default_rng(seed)
    labels = np.r_[chance.integers(0, 3, desired), -np.ones(undesired, np.int64)]
    scores = np.r_[chance.normal(1.0, 1.0, desired), chance.normal(0.0, 1.0, undesired)].round(2)
    scores[:desired] += shift
    index = np.where(chance.random(len(labels)) < 0.8, labels, 9)
    number = first + np.r_[np.arange(desired), np.arange(undesired)]
    return Outcomes.of(labels, scores, scores > 0.5, index, np.where(labels >= 0, "known", "unknown"), number)


def shuffled(run: Outcomes, seed: int) -> Outcomes:
    order = np.random.default_rng(seed).permutation(len(run.labels))
    return Outcomes(*(getattr(run, name)[order] for name in run.__dataclass_fields__))


@pytest.mark.parametrize("metric", METRICS)
def test_the_first_value_is_the_figure_itself(metric: str) -> None:
    runs = [simulated(seed) for seed in range(3)]
    if metric == "open_accuracy":  # known: accepted and named rightly; unknown: rejected
        figures = [
            100 * np.mean(np.where(run.labels >= 0, run.accepted & (run.index == run.labels), ~run.accepted))
            for run in runs
        ]
    else:
        figures = [metrics.summary(run.labels, run.scores, run.accepted, run.index)[metric] for run in runs]
    assert Resampling(runs, resamples=5).values(runs, metric)[0] == pytest.approx(np.mean(figures))


@pytest.mark.parametrize("metric", METRICS)
def test_equal_runs_differ_by_exactly_nothing_in_any_order(metric: str) -> None:
    runs = [simulated(seed) for seed in range(2)]
    mixed = [shuffled(run, 5) for run in runs]
    assert paired_difference(runs, mixed, metric) == Interval(0.0, 0.0, 0.0)
    other = [replace(run, scores=run.scores + 0.2 * run.labels, accepted=run.scores > 0.7) for run in runs]
    once = paired_difference(runs, other, metric)
    assert once == paired_difference(mixed, [shuffled(run, 8) for run in other], metric)
    assert paired_difference(other, runs, metric).difference == -once.difference


@pytest.mark.parametrize("metric", OF_SCORES)
def test_a_figure_of_scores_by_weights_is_that_of_repeated_images(metric: str) -> None:
    run = simulated(3, 20, 15)
    drawn = Resampling([run], resamples=20, seed=4)
    values = drawn.values([run], metric)
    for column in (1, 7, 20):
        times = np.array([drawn._weights[drawn._place[image], column] for image in run.images], int)
        again = np.repeat(np.arange(len(times)), times)
        assert values[column] == pytest.approx(metrics.separation(run.labels[again], run.scores[again])[metric])
        # Desired and undesired images are drawn apart, so that their shares stay.
        assert times[run.labels >= 0].sum() == 20
        assert times[run.labels < 0].sum() == 15


def test_the_truth_is_inside_about_as_often_as_promised() -> None:
    """Two runs of which each rejects 30 % and 20 % of the unknown images, dependent on each other."""
    inside, width = 0, []
    for seed in range(300):
        chance = np.random.default_rng(seed)
        both = chance.random(200)
        labels = np.r_[np.zeros(10, int), -np.ones(200, int)]
        ours, theirs = (np.r_[np.zeros(10, bool), both >= share] for share in (0.3, 0.2))
        # A third of the second run's answers has nothing to do with the first's.
        own = np.r_[np.zeros(10, bool), chance.random(200) >= 0.2]
        theirs = np.where(np.arange(210) % 3 == 0, own, theirs)
        one, other = (Outcomes.of(labels, np.zeros(210), accepted, labels) for accepted in (ours, theirs))
        found = paired_difference([one], [other], "acc_undesired", resamples=300, seed=seed)
        inside += found.low <= 10.0 <= found.high
        width.append(found.high - found.low)
    assert 0.91 <= inside / 300 <= 0.98
    # Independent runs would have 2 x 1.96 x sqrt((0.21 + 0.16) / 200) = 16.9.
    assert np.mean(width) < 14


def test_an_image_that_several_seeds_show_counts_as_one() -> None:
    """Five orders of the same images are no more images than one; five sets of images are."""
    same = [simulated(1) for _ in range(5)]
    apart = [simulated(seed, first=1000 * seed) for seed in range(5)]

    def width(runs: list[Outcomes]) -> float:
        found = paired_difference(runs, [replace(run, accepted=run.scores > 0.9) for run in runs], "acc_undesired")
        return found.high - found.low

    one = width(same[:1])
    assert width(same) == pytest.approx(one, rel=0.1)
    # No narrower than that of five times as many images; the spread between seeds may make it wider.
    assert 0.8 * one / np.sqrt(5) < width(apart) < 0.8 * one


def test_by_domain_is_the_mean_of_the_domains() -> None:
    run = simulated(2)
    domain = np.arange(len(run.labels)) % 2
    split = replace(run, domain=domain)
    parts = [
        metrics.summary(*(column[domain == number] for column in (run.labels, run.scores, run.accepted, run.index)))
        for number in (0, 1)
    ]
    value = Resampling([split], resamples=3).values([split], "hm", by_domain=True)[0]
    assert value == pytest.approx(np.mean([part["hm"] for part in parts]))


def test_a_figure_that_does_not_exist_has_no_interval() -> None:
    closed = simulated(1, undesired=0)
    found = paired_difference([closed], [closed], "hm")
    assert np.isnan([found.difference, found.low, found.high]).all()
    assert not found.excludes_zero
    assert paired_difference([closed], [closed], "accepted_desired") == Interval(0.0, 0.0, 0.0)


def test_what_cannot_be_paired_is_refused() -> None:
    with raises("runs-not-paired"):
        paired_difference([simulated(1)], [simulated(1, first=7)], "hm")
    with raises("runs-not-paired"):
        paired_difference([simulated(1)], [], "hm")
    with raises("metric-unknown"):
        paired_difference([simulated(1)], [simulated(1)], "ms")
    with raises("option-invalid"):
        Resampling([simulated(1)], resamples=0)


def test_marks_and_bounds() -> None:
    found = interval(np.array([1.0, *np.linspace(0, 100, 101)]))
    assert (found.difference, found.low, found.high) == pytest.approx((1.0, 2.5, 97.5))
    assert Interval(1.0, 0.1, 2.0).excludes_zero
    assert Interval(-1.0, -2.0, -0.1).excludes_zero
    assert not Interval(1.0, 0.0, 2.0).excludes_zero


def test_thousands_of_images_take_no_time_worth_waiting_for() -> None:
    runs = [simulated(seed, 2000, 2000, first=1500 * seed) for seed in range(3)]
    other = [replace(run, scores=run.scores * 0.9) for run in runs]
    began = time.perf_counter()
    paired_difference(runs, other, "hm")
    # 0.2 s on one core; a busy machine gets some more.
    assert time.perf_counter() - began < 3


@pytest.mark.parametrize("images_in_common", [False, True])
def test_several_seeds_cover_what_a_method_learned_from_its_images(images_in_common: bool) -> None:
    """The difference of a seed is 0 plus the effects of its images (sd 1) and of its updates (sd 1.5)."""
    chance, groups, resamples = np.random.default_rng(3), 400, 200
    alone = nested = 0
    for _ in range(groups):
        of_images = np.repeat(chance.normal(size=1), 4) if images_in_common else chance.normal(size=4)
        found = of_images + chance.normal(0.0, 1.5, 4)
        # A bootstrap knows the spread over images, and nothing of the other.
        drawn = chance.normal(size=(1 if images_in_common else 4, resamples))
        rows = np.concatenate([found[:, None], found[:, None] + np.broadcast_to(drawn, (4, resamples))], axis=1)
        one, several = interval(rows[0]), interval(rows)
        alone += one.low <= 0 <= one.high
        nested += several.low <= 0 <= several.high
    # With sd 1 in place of sqrt(1 + 1.5^2): the chance of |z| < 1.96 / 1.80 is 0.72.
    assert alone / groups == pytest.approx(0.72, abs=0.06)
    assert 0.93 <= nested / groups <= 0.99


def test_a_paired_difference_over_seeds_has_the_spread_between_them() -> None:
    runs = [simulated(seed, 60, 60, first=100 * seed) for seed in range(3)]
    # What was learned lets one seed reject many more unknown images than the others.
    other = [replace(run, accepted=run.scores > line) for run, line in zip(runs, (0.6, 0.6, 2.0), strict=True)]
    singles = [paired_difference([one], [two], "acc_undesired") for one, two in zip(other, runs, strict=True)]
    found = paired_difference(other, runs, "acc_undesired")
    assert found.difference == pytest.approx(np.mean([one.difference for one in singles]))
    student = stats.ttest_1samp([one.difference for one in singles], 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(student.low, rel=0.1), pytest.approx(student.high, rel=0.1))
    assert singles[2].excludes_zero
    assert not found.excludes_zero


def test_the_spread_over_seeds_by_hand() -> None:
    """Three seeds of disjoint images: Student's t over the seeds.

    The same images three times: their spread and the seeds'.
    """
    chance = np.random.default_rng(0)
    noise = chance.normal(0.0, 0.1, (3, 4000))
    disjoint = np.concatenate([[[1.0], [3.0], [5.0]], noise], axis=1)
    found = interval(disjoint)
    by_scipy = stats.ttest_1samp([1.0, 3.0, 5.0], 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(by_scipy.low, rel=0.05), pytest.approx(by_scipy.high, rel=0.05))
    same = np.concatenate([[[1.0], [1.1], [1.2]], np.tile(noise[:1] * 10, (3, 1))], axis=1)
    # Variances: 0.01 / 3 between the seeds, and 1 over the images that all three show.
    assert SeedSpread.of(same).error == pytest.approx(np.sqrt(1.0 + 0.01 / 3), rel=0.03)
    assert SeedSpread.of(same).degrees > 1e4
    # Equal seeds, and no more: the interval over images.
    equal = SeedSpread.of(np.tile(same[:1], (3, 1)))
    assert (equal.error, equal.degrees) == (pytest.approx(1.0, rel=0.03), np.inf)
    # Seeds that agree by luck do not make the interval narrower than the one over images.
    lucky = interval(np.concatenate([[[1.0], [1.0], [1.0001]], 10 * noise], axis=1))
    assert lucky.high - lucky.low == pytest.approx(2 * 1.96 / np.sqrt(3), rel=0.05)
