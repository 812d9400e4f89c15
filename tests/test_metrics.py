"""The five figures: by hand, against scikit-learn, and where a side is missing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ostta import Error, metrics

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
    # Pairs with the desired image above: 8 over 0.05, 7 over 0.2, 7 over 0.3, 3 over 0.65 -> 25 of 32.
    assert figures["auroc"] == pytest.approx(100 * 25 / 32)
    # 7 of 8 desired lie above 0.3 with one undesired above; the polyline rises from (3/4, 7/8) to (3/4, 1): 0.75 there.
    assert figures["fpr95"] == pytest.approx(75.0)


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


def test_one_sided_streams_have_no_made_up_figures() -> None:
    closed = metrics.summary(np.array([0, 1]), np.array([0.5, 0.6]), np.array([True, True]), np.array([0, 0]))
    assert closed == {"auroc": None, "fpr95": None, "acc_desired": 50.0, "acc_undesired": None, "hm": None}
    unknown = metrics.summary(np.array([-1, -1]), np.array([0.5, 0.6]), np.array([True, False]), np.array([0, 0]))
    assert unknown == {"auroc": None, "fpr95": None, "acc_desired": None, "acc_undesired": 50.0, "hm": None}


def test_both_zero_is_zero() -> None:
    assert metrics.harmonic_mean(0.0, 0.0) == 0.0
    assert metrics.harmonic_mean(None, 3.0) is None


def test_refuses_scores_that_are_not_finite() -> None:
    with pytest.raises(Error, match="1 of 2 scores"):
        metrics.separation(np.array([0, -1]), np.array([np.nan, 0.1]))
