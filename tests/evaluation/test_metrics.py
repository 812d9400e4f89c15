"""The five figures: by hand, against scikit-learn, and where a side is missing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from helpers.errors import raises
from ostta.evaluation import metrics

# Twelve images worked out by hand: eight desired (classes 0 and 1), four undesired.
LABELS = np.array([0, 0, 1, 1, 0, 1, 0, 1, -1, -1, -1, -1])
SCORES = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.1, 0.65, 0.3, 0.2, 0.05])
ACCEPTED = SCORES >= 0.4
INDEX = np.array([0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0])


def test_twelve_images_by_hand() -> None:
    figures = metrics.summary(LABELS, SCORES, ACCEPTED, INDEX)
    # Accepted desired: the first six; right class: images 0, 2, 3, 4. Rejected undesired: three of four.
    assert figures["acc_desired"] == pytest.approx(100 * 4 / 8)
    assert figures["acc_undesired"] == pytest.approx(100 * 3 / 4)
    assert figures["hm"] == pytest.approx(60.0)
    # Six of eight desired accepted; the right best class: all but images 1 and 5.
    assert figures["accepted_desired"] == pytest.approx(75.0)
    assert figures["accuracy"] == pytest.approx(75.0)
    # Pairs with the desired image above: 8 over 0.05, 7 over 0.2, 7 over 0.3, 3 over 0.65 -> 25 of 32.
    assert figures["auroc"] == pytest.approx(100 * 25 / 32)
    # 7 of 8 desired lie above 0.3 with one undesired above; the polyline rises from (3/4, 7/8) to (3/4, 1): 0.75 there.
    assert figures["fpr95"] == pytest.approx(75.0)
    # 95 % of eight is all eight: the threshold 0.1, above which three of the four undesired ones lie.
    assert figures["fpr95_strict"] == pytest.approx(75.0)
    # The sides exchanged, from (rejected desired, rejected undesired) = (5/8, 3/4) up to (5/8, 1): 0.625 there.
    assert figures["fpr95_undesired"] == pytest.approx(62.5)


def test_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(500) < 0.5, rng.integers(0, 5, 500), -1)
    scores = rng.normal(size=500) + (labels >= 0)
    assert metrics.separation(labels, scores)["auroc"] == pytest.approx(100 * roc_auc_score(labels >= 0, scores))


def test_fpr_is_interpolated() -> None:
    labels = np.array([0] * 10 + [-1] * 10)
    scores = np.concatenate([np.linspace(1, 2, 10), np.linspace(0.5, 1.5, 10)])
    at = metrics.separation(labels, scores)["fpr95"]
    assert 0 < at < 100


def test_the_three_ways_to_count_fpr95_by_hand() -> None:
    # Ten desired images at 1..10 and ten undesired ones, one below each of them: d_i = i, u_i = i - 0.5.
    labels = np.array([0] * 10 + [-1] * 10)
    scores = np.concatenate([np.arange(1, 11), np.arange(1, 11) - 0.5])
    figures = metrics.separation(labels, scores)
    # Nine desired accepted at 2 (eight undesired above), ten at 1 (nine above). Strictly, 95 % needs all ten.
    assert figures["fpr95_strict"] == pytest.approx(90.0)
    # The steps: up to (0.8, 0.9), across to (0.9, 0.9), up to (0.9, 1): at 0.95 the polyline is at 0.9.
    assert figures["fpr95"] == pytest.approx(90.0)
    # Ten undesired rejected need a threshold above 9.5: nine desired below it.
    assert figures["fpr95_undesired"] == pytest.approx(90.0)
    # Ties make the polyline slope: from (0.5, 0.5) to (1, 1) it passes 0.95 at 0.95, but no threshold lies there.
    tied = metrics.separation(np.array([0, 1, -1, -1]), np.array([2.0, 1.0, 2.0, 1.0]))
    assert tied["fpr95"] == pytest.approx(95.0)
    assert tied["fpr95_strict"] == pytest.approx(100.0)
    assert tied["fpr95_undesired"] == pytest.approx(95.0)


def test_one_sided_streams_have_no_made_up_figures() -> None:
    closed = metrics.summary(np.array([0, 1]), np.array([0.5, 0.6]), np.array([True, True]), np.array([0, 0]))
    none = dict.fromkeys((*metrics.NAMES, *metrics.SUPPORTING, "fpr95_strict", "fpr95_undesired"))
    assert closed == none | {"acc_desired": 50.0, "accepted_desired": 100.0, "accuracy": 50.0}
    unknown = metrics.summary(np.array([-1, -1]), np.array([0.5, 0.6]), np.array([True, False]), np.array([0, 0]))
    assert unknown == none | {"acc_undesired": 50.0}


def test_both_zero_is_zero() -> None:
    assert metrics.harmonic_mean(0.0, 0.0) == 0.0
    assert metrics.harmonic_mean(None, 3.0) is None


def test_refuses_scores_that_are_not_finite() -> None:
    with raises("scores-not-finite"):
        metrics.separation(np.array([0, -1]), np.array([np.nan, 0.1]))
