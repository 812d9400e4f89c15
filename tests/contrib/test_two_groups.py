"""Unknown images that fit a class well: a second kind of image among those that are given to a class."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_neighbours import CLASSIFIER, C, D, run, unit

from ostta.contrib import Adaptive, AdaptiveOptions
from ostta.contrib.recent_images import RecentImages
from ostta.contrib.two_groups import clearness, kinship
from ostta.core.banks import ScoreBank


def fooling(known: int, unknown: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """As `stream`, but unknown images are given to two classes, which they fit far better than by chance."""
    rng = np.random.default_rng(seed)
    place = unit(np.random.default_rng(7).normal(size=D))
    labels, taken_for = rng.integers(C, size=known), rng.integers(2, size=unknown)
    known_rows = CLASSIFIER[labels] * rng.uniform(0.5, 1.2, (known, 1))
    rows = np.concatenate([known_rows, 0.5 * CLASSIFIER[taken_for] + place])
    rows = unit(rows + 0.8 * rng.normal(0, 1 / math.sqrt(D), rows.shape))
    order = rng.permutation(len(rows))
    return rows[order], (np.arange(len(rows)) < known)[order].astype(int)


def test_unknowns_that_fit_well_are_cut_off_as_a_second_kind() -> None:
    rows, known = fooling(500, 500)
    _, accepted, evidence = run(rows)
    late = slice(256, None)
    assert (
        min(each["margin"] for each in evidence[256:]) > AdaptiveOptions().few_margin
    )  # they fit better than by chance
    assert np.mean([each["groups"] for each in evidence[256:]]) > 1.9
    assert accepted[late][known[late] == 1].mean() > 0.9
    assert accepted[late][known[late] == 0].mean() < 0.1


@pytest.mark.parametrize("classes", [1, 2, C])
def test_known_images_alone_are_of_one_kind(classes: int) -> None:
    rng = np.random.default_rng(3)
    for size in (64, 128, 256, 512):
        labels = rng.integers(classes, size=size)
        rows = unit(CLASSIFIER[labels] * rng.uniform(0.2, 1.2, (size, 1)) + rng.normal(0, 1 / math.sqrt(D), (size, D)))
        assert RecentImages.of(rows, (rows @ CLASSIFIER.T).astype(np.float64), 5).groups == 1, size


def test_kinship_is_about_neighbours_of_the_same_class() -> None:
    rows = unit(np.random.default_rng(0).normal(size=(200, D)))
    beside = unit(rows + np.eye(D)[0] * np.where(np.arange(200) < 100, 3, -3)[:, None])
    low, classes = np.arange(200) < 100, [np.arange(200)]
    assert abs(kinship(rows, low, classes, 5)) < 0.3
    assert kinship(beside, low, classes, 5) > 0.99
    # Each class wholly on one side: nothing varies inside of classes.
    assert kinship(beside, low, [np.arange(100), np.arange(100, 200)], 5) == 0


def test_clearness_is_the_explained_share_inside_of_classes() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.normal(size=20_000)
    gaps[10_000:] += 50  # another class, far off: that is no second kind
    classes = [np.arange(10_000), np.arange(10_000, 20_000)]
    assert clearness(gaps, classes) == pytest.approx(2 / math.pi, abs=0.01)
    assert clearness(gaps, [np.arange(20_000)]) > 0.99
    assert clearness(np.zeros(40), [np.arange(40)]) == clearness(gaps, []) == 0


def test_adaptive_cuts_where_images_are_of_two_kinds() -> None:
    identifier = Adaptive()
    for _ in range(40):
        identifier.observe(0.5, {"contrast": 1.0, "margin": 0.5, "groups": 1.0})
    assert identifier.peek(-0.4, {"contrast": 1.0, "margin": 0.5, "groups": 1.0}).desired
    assert not identifier.peek(-0.4, {"contrast": 1.0, "margin": 0.5, "groups": 2.0}).desired
    # A score of somebody else's may say nothing about it.
    assert identifier.peek(-0.4, {"contrast": 1.0, "margin": 0.5}).desired


def test_the_mean_of_a_bank_is_that_of_its_content() -> None:
    bank = ScoreBank(16)
    for number in range(40):
        value = float(number % 3 == 0)
        assert bank.mean_with(value) == bank.sorted_with(value).mean()
        bank.push(value)
