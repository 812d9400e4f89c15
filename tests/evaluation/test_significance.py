"""When a difference may be marked.

Chances, Holm's correction and ranks, against closed forms and scipy's own functions.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from helpers.errors import raises
from ostta.bench.against_frozen import average_ranks, streams_needed
from ostta.evaluation.intervals import Outcomes, Resampling, holm, over_images, over_seeds


def test_holm_by_hand() -> None:
    # Sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2, 0.5 * 1; a later one is never below an earlier one.
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_marked_one_is_what_the_steps_of_holm_reject() -> None:
    chance = np.random.default_rng(0)
    for _ in range(50):
        given = chance.random(12) ** 3
        order, rejected = np.argsort(given), np.zeros(12, bool)
        for rank, place in enumerate(order):
            if given[place] >= 0.05 / (12 - rank):
                break
            rejected[place] = True
        assert [each < 0.05 for each in holm(given.tolist())] == rejected.tolist()


def test_the_chance_over_images_is_about_that_of_mcnemar() -> None:
    """400 unknown images, of which one run rejects 40 that the other accepts, and 20 the other way round."""
    labels = -np.ones(400, np.int64)
    first, second = np.ones(400, bool), np.ones(400, bool)
    first[:40], second[40:60] = False, False
    ours, theirs = (Outcomes.of(labels, np.zeros(400), accepted, np.zeros(400)) for accepted in (first, second))
    drawn = Resampling([ours])
    values = drawn.values([ours], "acc_undesired") - drawn.values([theirs], "acc_undesired")
    assert values[0] == pytest.approx(5.0)
    # Of 60 images that changed sides, 40 or more on one side.
    exact = stats.binomtest(40, 60).pvalue
    assert over_images(values, 60) == pytest.approx(exact, rel=0.5)
    assert exact == pytest.approx(0.0135, abs=2e-4)


def test_no_chance_is_smaller_than_so_few_images_allow() -> None:
    surely = np.r_[30.0, np.full(1000, 30.0)]
    # Five images for one side and none for the other: the sign test says 2 / 2^5.
    assert over_images(surely, 5) == stats.binomtest(5, 5).pvalue == 2 / 32
    assert over_images(surely, 40) == 2.0**-39
    assert over_images(np.zeros(1001), 0) == 1.0
    with raises("resamples-missing"):
        over_images(np.r_[1.0, np.full(9, np.nan)], 5)


def test_over_seeds_is_the_paired_test_of_student() -> None:
    ours, theirs = [71.2, 70.1, 73.0, 72.4], [69.8, 69.0, 70.9, 71.3]
    interval, chance = over_seeds([one - other for one, other in zip(ours, theirs, strict=True)])
    theirs_by_scipy = stats.ttest_rel(ours, theirs)
    assert chance == pytest.approx(theirs_by_scipy.pvalue)
    bounds = theirs_by_scipy.confidence_interval(0.95)
    assert (interval.low, interval.high) == (pytest.approx(bounds.low), pytest.approx(bounds.high))
    # One seed, or seeds that change nothing at all, have no spread to judge by.
    assert over_seeds([2.0]) is None
    assert over_seeds([2.0, 2.0, 2.0]) is None


# --- ranks ------------------------------------------------------------------------------------------------------------
def test_ranks_by_hand() -> None:
    ranks = average_ranks({"a": [3, 1, 2], "b": [2, 2, 2], "c": [1, 3, 1]})
    # By stream: a 1, b 2, c 3; c 1, b 2, a 3; a and b share 1 and 2, c 3.
    assert dict(zip(ranks.methods, ranks.average, strict=True)) == pytest.approx(
        {"a": 5.5 / 3, "b": 5.5 / 3, "c": 7 / 3}
    )
    lower = average_ranks({"a": [3, 3], "b": [1, 2]}, higher_is_better=False)
    assert (lower.methods, lower.average) == (("b", "a"), (1.0, 2.0))


def test_friedman_and_wilcoxon_are_those_of_scipy() -> None:
    chance = np.random.default_rng(1)
    base = chance.normal(60, 5, 12)
    values = {
        name: base + shift + chance.normal(0, 1, 12) for name, shift in (("a", 6), ("b", 3), ("c", 2.8), ("d", 0))
    }
    ranks = average_ranks(values)
    assert ranks.differ == pytest.approx(stats.friedmanchisquare(*values.values()).pvalue)
    pairs = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]
    corrected = holm([stats.wilcoxon(values[one], values[other]).pvalue for one, other in pairs])
    wanted = {pair for pair, each in zip(pairs, corrected, strict=True) if each < 0.05}
    assert {tuple(sorted(pair)) for pair in ranks.apart} == wanted
    assert 0 < len(wanted) < len(pairs)
    assert {frozenset(stretch) for stretch in ranks.joined} == {frozenset("bc")}


def test_where_friedman_sees_nothing_all_are_joined() -> None:
    ranks = average_ranks({"a": [1, 2, 1, 2], "b": [2, 1, 2, 1], "c": [1, 2, 2, 1]})
    assert ranks.differ > 0.05
    assert [set(stretch) for stretch in ranks.joined] == [{"a", "b", "c"}]
    equal = average_ranks({"a": [1.0] * 8, "b": [1.0] * 8, "c": [1.0] * 8})
    assert (equal.average, equal.differ, equal.apart) == ((2.0, 2.0, 2.0), 1.0, frozenset())


@pytest.mark.parametrize("methods", [2, 3, 4, 7, 12])
def test_as_many_streams_as_are_needed_and_not_one_less(methods: int) -> None:
    """One method that is best on every stream, by other differences each time."""
    needed, pairs = streams_needed(methods), math.comb(methods, 2)
    for count, possible in ((needed, True), (needed - 1, False)):
        smallest = stats.wilcoxon(np.arange(1.0, count + 1)).pvalue
        assert (smallest * pairs < 0.05) == possible


def test_bad_ranks_are_refused() -> None:
    for values in ({}, {"a": [1, 2]}, {"a": [1], "b": [2]}, {"a": [1, 2], "b": [1]}):
        with raises("ranks-impossible"):
            average_ranks(values)
