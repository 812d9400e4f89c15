"""The score `neighbours` and the identifier `adaptive` on streams whose answer is known by construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from helpers.errors import raises
from ostta import Decision, Error, Verdict
from ostta.contrib import Adaptive, AdaptiveOptions, Neighbours, NeighboursOptions
from ostta.contrib.adaptive import DEPTH
from ostta.contrib.recent_images import RecentImages, chance_peak, near
from ostta.core.otsu import explained_share, otsu_split
from ostta.core.types import Look, Preprocessing
from ostta.identifiers import LDA
from ostta.scores import Setting

C, D = 10, 64
NONE = Decision(Verdict.UNRELIABLE_DESIRED, None, None, None)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


CLASSIFIER = unit(np.random.default_rng(0).normal(size=(C, D)))


def stream(
    known: int, unknown: int, seed: int = 1, common: float = 0.0, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Known images lie round their class, unknown ones round a place of their own; 1 is known."""
    rng = np.random.default_rng(seed)
    place = unit(np.random.default_rng(7).normal(size=D))
    labels = rng.integers(C, size=known)
    spread = noise * rng.normal(0, 1 / math.sqrt(D), (known + unknown, D))
    rows = (
        np.concatenate([CLASSIFIER[labels] * rng.uniform(0.3, 1.2, (known, 1)), np.tile(place, (unknown, 1))]) + spread
    )
    rows = unit(unit(rows) + common * unit(np.ones(D)))
    order = rng.permutation(len(rows))
    return rows[order], (np.arange(len(rows)) < known)[order].astype(int)


def setting(classifier: np.ndarray = CLASSIFIER) -> Setting:
    pixels = Preprocessing(4, (0.5,) * 3, (0.2,) * 3)
    return Setting(torch.from_numpy(classifier), 100.0, 1.0, pixels, lambda images: images)


def look(row: np.ndarray) -> Look:
    features = torch.from_numpy(row)
    return Look(None, features, features, features, None)


def run(rows: np.ndarray, identifier=None, **options) -> tuple[np.ndarray, np.ndarray, list[dict]]:
    """Scores, who was accepted, and the evidence."""
    score, identifier = Neighbours(NeighboursOptions(**options), setting()), identifier or Adaptive(scale=None)
    values, accepted, evidence = [], [], []
    for row in rows:
        seen = look(row)
        scored = score.value(seen)
        decision = identifier.observe(scored.value, scored.evidence)
        score.remember(seen, scored, decision)
        values.append(scored.value)
        accepted.append(decision.desired)
        evidence.append(dict(scored.evidence))
    return np.array(values), np.array(accepted), evidence


def test_neighbours_tell_apart_what_the_best_class_does_not() -> None:
    rows, known = stream(600, 600, noise=1.6)
    values, _, _ = run(rows)
    late = slice(200, None)
    plain = (rows @ CLASSIFIER.T).max(1)
    assert roc_auc_score(known[late], plain[late]) < 0.9
    assert roc_auc_score(known[late], values[late]) > 0.99


@pytest.mark.parametrize("unknown", [0, 60])
def test_rare_unknowns_do_not_cost_the_known(unknown: int) -> None:
    rows, known = stream(1200, unknown)
    _, adaptive, _ = run(rows)
    _, lda, _ = run(rows, LDA(scale=None))
    late = np.arange(len(rows)) > 300
    assert adaptive[late & (known == 1)].mean() > 0.95
    assert lda[late & (known == 1)].mean() < 0.8
    if unknown:
        assert adaptive[late & (known == 0)].mean() < 0.4


def test_many_unknowns_are_cut_off() -> None:
    rows, known = stream(600, 600)
    _, accepted, _ = run(rows)
    late = np.arange(len(rows)) > 200
    assert accepted[late & (known == 1)].mean() > 0.95
    assert accepted[late & (known == 0)].mean() < 0.05


def test_after_a_window_nothing_is_left_of_what_came_before() -> None:
    """A thousand unknown images first: the banks are made from the window alone."""
    before, _ = stream(0, 1000, seed=3)
    rows, known = stream(600, 600)
    _, accepted, _ = run(np.concatenate([before, rows]))
    late = np.arange(len(rows)) > 512
    assert (accepted[1000:][late] == (known[late] == 1)).mean() > 0.95


def test_scale_and_shift_of_the_cosines_change_nothing() -> None:
    rows, _ = stream(300, 300)
    cosines = (rows @ CLASSIFIER.T).astype(np.float64)
    one = RecentImages.of(rows, cosines, 5)
    other = RecentImages.of(rows, 0.1 * cosines + 0.2, 5)
    first, second = one.judge(rows[:50], cosines[:50]), other.judge(rows[:50], 0.1 * cosines[:50] + 0.2)
    np.testing.assert_allclose(first.score, second.score, atol=1e-6)
    np.testing.assert_allclose(first.contrast, second.contrast, atol=1e-6)
    assert one.margin == pytest.approx(other.margin, abs=1e-6)


def test_a_direction_that_all_images_share_changes_little() -> None:
    """As in real towers, where any two images have a high cosine."""
    rows, known = stream(500, 500)
    shared, same = stream(500, 500, common=2.0)
    assert (same == known).all()
    assert (rows @ rows.T).mean() < 0.3 < 0.7 < (shared @ shared.T).mean()
    assert roc_auc_score(known[200:], run(shared)[0][200:]) > roc_auc_score(known[200:], run(rows)[0][200:]) - 0.01


def test_near_is_the_mean_of_the_nearest() -> None:
    rows, _ = stream(30, 0)
    expected = [np.sort(rows[10:] @ row)[-5:].mean() for row in rows[:10]]
    np.testing.assert_allclose(near(rows[:10], rows[10:], 5), expected, rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 10, 50])
def test_the_peak_by_chance_is_that_of_normal_cosines(classes: int) -> None:
    cosines = np.random.default_rng(0).normal(size=(40_000, classes))
    fit = cosines.max(1)
    worst = np.argsort(fit)[: len(fit) // 4]
    peak = fit[worst].mean() / np.sqrt((cosines[worst] ** 2).mean())
    assert chance_peak(classes) == pytest.approx(peak, abs=0.01)


def test_cuts() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 1, 300), rng.normal(6, 1, 100)])
    cut, low, high = otsu_split(values)
    assert (low, high) == pytest.approx((values[values < cut].mean(), values[values > cut].mean()))
    best = min(
        (values[values <= c].var() * (values <= c).sum() + values[values > c].var() * (values > c).sum(), c)
        for c in np.sort(values)[:-1]
    )
    assert (values <= best[1]).sum() == (values < cut).sum()
    assert explained_share(rng.normal(size=20_000)) == pytest.approx(2 / math.pi, abs=0.01)
    assert explained_share(rng.uniform(size=20_000)) == pytest.approx(0.75, abs=0.01)
    assert otsu_split(np.full(5, 0.3)) == (0.3, 0.3, 0.3)
    assert explained_share(np.full(5, 0.3)) == 0


def test_a_stop_in_the_middle_changes_nothing() -> None:
    rows, _ = stream(150, 100)
    one, other = (Neighbours(NeighboursOptions(recent_images=64), setting()) for _ in range(2))
    for number, row in enumerate(rows):
        if number in (2, 90, 201):
            other = Neighbours(NeighboursOptions(recent_images=64), setting())
            other.load(one.tensors())
        first, second = one.value(look(row)), other.value(look(row))
        assert first == second, number
        for score in (one, other):
            score.remember(look(row), first, NONE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("images/seen", torch.tensor(3)),
        ("images/waiting", torch.ones(2, D)),
        ("images/waiting", torch.zeros(900, D)),
        ("window/count", torch.tensor(7)),
        ("window/rows", torch.full((64, D), math.nan)),
        ("strange", torch.zeros(1)),
    ],
)
def test_a_damaged_window_is_refused(name: str, value: torch.Tensor) -> None:
    score = Neighbours(NeighboursOptions(recent_images=64), setting())
    for row in stream(80, 20)[0]:
        score.remember(look(row), score.value(look(row)), NONE)
    good = score.tensors()
    with pytest.raises(Error):
        Neighbours(NeighboursOptions(recent_images=64), setting()).load({**good, name: value})


def test_options_that_cannot_be_are_sentences() -> None:
    with raises("option-conflict", match=r"^`recent_images` \(64\) must be at least four times `nearest` \(20\)\.$"):
        Neighbours(NeighboursOptions(recent_images=64, nearest=20), setting())


def test_adaptive_without_evidence_is_lda() -> None:
    scores = np.concatenate([np.random.default_rng(0).normal(m, 0.1, 150) for m in (0, 1)])
    np.random.default_rng(1).shuffle(scores)
    one, other = Adaptive(scale=None), LDA(scale=None)
    for score in scores.tolist():
        first, second = one.observe(score), other.observe(score)
        assert first.threshold == pytest.approx(second.threshold)
        assert first.verdict == second.verdict


def taught(rejected: int, identifier: Adaptive | None = None) -> Adaptive:
    """After a hundred images, so many of them rejected, evenly spread."""
    identifier = identifier or Adaptive(AdaptiveOptions(window=100), scale=None)
    for number in range(100):
        contrast = -1.0 if number * rejected // 100 != (number + 1) * rejected // 100 else 1.0
        identifier.remember(0.5, {"contrast": contrast, "margin": 1.0})
    return identifier


def test_the_line_goes_down_while_unknowns_get_fewer() -> None:
    identifier = taught(0)
    margins = (-1, 0.04, 0.11, 0.18, 1)
    lines = [identifier.peek(0.5, {"contrast": 1.0, "margin": margin}).threshold for margin in margins]
    assert lines == [0, 0, pytest.approx(-DEPTH / 2), None, None]
    between = {"contrast": 1.0, "margin": 0.11}
    assert [identifier.peek(score, between).desired for score in (-0.5, -0.7)] == [True, False]
    assert not identifier.peek(0.5, {"contrast": -0.1, "margin": 0.11}).desired


def test_adaptive_keeps_its_verdict_within_the_band() -> None:
    """The share of rejected images: above 0.275 unknowns are many, below 0.225 few."""
    identifier, cut = taught(0), []
    for rejected in (25, 30, 25, 20, 25):
        taught(rejected, identifier)
        cut.append(identifier.peek(0.5, {"contrast": 1.0, "margin": 1.0}).threshold == 0)
    assert cut == [False, True, True, False, False]


def test_margins_in_the_wrong_order_are_one_sentence() -> None:
    with raises("option-invalid", match=r"^`few_margin` \(0.1\) must be above `many_margin` \(0.2\)\.$"):
        AdaptiveOptions(many_margin=0.2, few_margin=0.1)


def test_nothing_is_reliably_unknown_while_unknowns_are_few() -> None:
    identifier = Adaptive(scale=None)
    for value in np.random.default_rng(0).normal(size=100):
        decision = identifier.observe(float(value), {"contrast": float(value > -1), "margin": 0.5})
        assert decision.verdict != Verdict.RELIABLE_UNDESIRED
