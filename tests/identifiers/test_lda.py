"""The LDA identifier against a brute force that follows its definition word by word."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.errors import raises
from ostta.identifiers import LDA, LDAOptions
from ostta.identifiers.lda import ENOUGH

scores_lists = st.lists(st.floats(-0.5, 1.2).map(lambda x: round(x, 4)), min_size=1, max_size=60)


def cost(low: np.ndarray, high: np.ndarray, objective: str, total: int) -> float:
    if len(low) == 0 or len(high) == 0:
        return np.inf
    if objective == "weighted":
        return float((len(low) * low.var() + len(high) * high.var()) / total)
    return float(low.var() + high.var())


def groups(scores: np.ndarray, candidate: float, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    return scores[scores < candidate], scores[scores > candidate] if strict else scores[scores >= candidate]


@pytest.mark.parametrize("objective", ["weighted", "unweighted"])
@pytest.mark.parametrize("kind", ["inclusive", "strict"])
@settings(max_examples=60, deadline=None)
@given(scores=scores_lists, scale=st.sampled_from([1.0, 100.0]))
def test_grid_finds_the_first_minimiser(scores: list[float], scale: float, objective: str, kind: str) -> None:
    values = np.sort(np.array(scores) * scale)
    identifier = LDA(LDAOptions(objective=objective, groups=kind), scale=scale)
    threshold, mu_u, mu_d = identifier.search(values)
    grid = np.arange(100) * 0.01 * scale
    costs = np.array([cost(*groups(values, tau, kind == "strict"), objective, len(values)) for tau in grid])
    if np.isinf(costs).all():
        assert (threshold, mu_u, mu_d) == (0.0, 0.0, scale)
        return
    chosen = int(np.flatnonzero(grid == threshold)[0])
    # Equal up to rounding: two different splits may cost the same to the last digits.
    assert costs[chosen] == pytest.approx(costs.min(), abs=1e-9 * scale**2)
    same_split = [i for i in range(chosen) if costs[i] == costs[chosen]]
    assert not same_split or len(groups(values, grid[same_split[0]], False)[0]) != len(
        groups(values, threshold, False)[0]
    )
    low, high = groups(values, threshold, kind == "strict")
    assert mu_u == pytest.approx(low.mean(), abs=1e-9 * scale)
    assert mu_d == pytest.approx(high.mean(), abs=1e-9 * scale)


@pytest.mark.parametrize("objective", ["weighted", "unweighted"])
@settings(max_examples=60, deadline=None)
@given(scores=scores_lists)
def test_exact_search_beats_every_cut(scores: list[float], objective: str) -> None:
    values = np.sort(np.array(scores))
    threshold, mu_u, mu_d = LDA(LDAOptions(search="exact", objective=objective)).search(values)
    distinct = np.unique(values)
    if len(distinct) == 1:
        assert threshold == mu_u == mu_d == values[0]
        return
    cuts = (distinct[1:] + distinct[:-1]) / 2
    costs = [cost(*groups(values, cut, False), objective, len(values)) for cut in cuts]
    assert cost(*groups(values, threshold, False), objective, len(values)) == pytest.approx(min(costs), abs=1e-9)
    assert np.abs(cuts - threshold).min() < 1e-12


@settings(max_examples=40, deadline=None)
@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=80), window=st.integers(2, 20))
def test_observe_is_peek_then_take_over_the_last_window(scores: list[float], window: int) -> None:
    identifier = LDA(LDAOptions(window=window))
    for number, score in enumerate(scores):
        before = identifier.tensors()["scores"].clone()
        peeked = identifier.peek(score)
        assert identifier.tensors()["scores"].equal(before)
        assert identifier.observe(score) == peeked
        assert identifier.bank.scores().tolist() == scores[max(0, number + 1 - window) : number + 1]
        assert (peeked.threshold, peeked.mu_undesired, peeked.mu_desired) == LDA().search(
            np.sort(identifier.bank.scores())
        )


def test_published_degenerate_rules() -> None:
    first = LDA().observe(0.27)
    assert (first.verdict.value, first.threshold, first.mu_desired, first.mu_undesired) == (
        "unreliable_desired",
        0.0,
        1.0,
        0.0,
    )
    # All scores in one grid cell: no candidate separates them.
    identifier = LDA()
    assert [identifier.observe(s).verdict.value for s in (0.271, 0.274, 0.279)] == ["unreliable_desired"] * 3
    # A lone score is its own mean, and strictly above it it is not.
    assert identifier.observe(0.9).verdict.value == "unreliable_desired"
    # A negative score lies below the threshold 0 and the mean 0 of an empty side.
    assert LDA().observe(-0.1).verdict.value == "reliable_undesired"
    assert LDA(LDAOptions(search="exact")).observe(-0.1).verdict.value == "unreliable_desired"


def test_verdicts_follow_means_or_threshold() -> None:
    bank = [0.10, 0.12, 0.14, 0.30, 0.32, 0.34]

    def verdict(score: float, **options: str) -> str:
        identifier = LDA(LDAOptions(**options))
        for value in bank:
            identifier.remember(value)
        return identifier.peek(score).verdict.value

    assert verdict(0.40) == "reliable_desired"
    assert verdict(0.301) == "unreliable_desired"
    assert verdict(0.139) == "unreliable_undesired"
    assert verdict(0.05) == "reliable_undesired"
    assert verdict(0.301, reliable="threshold") == "reliable_desired"
    assert verdict(0.139, reliable="threshold") == "reliable_undesired"


def test_the_reliability_ablation_moves_verdicts_and_not_the_reported_means() -> None:
    """(mu_u, mu_d) become (t*, t*) for the verdict, so that only a score that equals t* is unreliable."""
    scores = np.random.default_rng(0).normal([0.2, 0.3], 0.03, (60, 2)).ravel()
    plain, ablated = LDA(), LDA(LDAOptions(reliable="threshold"))
    for score in scores:
        expected, found = plain.observe(float(score)), ablated.observe(float(score))
        assert (found.threshold, found.mu_desired, found.mu_undesired) == (
            expected.threshold,
            expected.mu_desired,
            expected.mu_undesired,
        )
        assert found.desired == expected.desired
        assert found.verdict.value == ("reliable_desired" if score >= found.threshold else "reliable_undesired")
    on_the_line = LDA(LDAOptions(reliable="threshold"))
    for score in (0.1, 0.1, 0.1):
        on_the_line.remember(score)
    decision = on_the_line.peek(0.11)
    assert (decision.threshold, decision.verdict.value) == (0.11, "unreliable_desired")


def test_window_of_one_is_refused() -> None:
    with raises("option-invalid", match="from 2 to"):
        LDA(LDAOptions(window=1))


def said(identifier: LDA, scores: list[float]) -> list[str]:
    """The warnings while `scores` are taken."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for score in scores:
            identifier.remember(score)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("scale", "value", "place"), [(1, 0.99, "above 0.99"), (100, 120, "above 99"), (1, -0.01, "below 0,")]
)
def test_scores_beyond_the_grid_are_said_once(scale: float, value: float, place: str) -> None:
    identifier = LDA(scale=scale)
    assert said(identifier, [value] * (ENOUGH - 1)) == []
    with pytest.warns(UserWarning, match=rf"^All of the last {ENOUGH} scores lie {place}.*`search=exact`[^.]*\.$"):
        identifier.remember(value)
    assert said(identifier, [value] * 1000) == []
    identifier.reset()
    assert said(identifier, [value] * 100) == []
    assert said(LDA(LDAOptions(search="exact"), scale=scale), [value] * 1000) == []


def test_a_single_score_on_the_grid_or_at_its_other_end_keeps_the_silence_while_it_counts() -> None:
    high = [1.0] * (ENOUGH - 1)
    assert said(LDA(), [*high, 0.5] * 20) == []
    assert said(LDA(), [*high, -0.1] * 20) == []
    # The grid separates this bank, until the one score has left the window.
    identifier = LDA(LDAOptions(window=100))
    assert said(identifier, [0.5, *[1.0] * 99]) == []
    assert len(said(identifier, [1.0])) == 1


def test_a_small_window_waits_for_as_many_scores() -> None:
    identifier = LDA(LDAOptions(window=2))
    assert said(identifier, [-0.1] * (ENOUGH - 1)) == []
    assert len(said(identifier, [-0.1] * 2)) == 1


def test_peek_says_nothing_and_a_restored_identifier_does_not_repeat_it() -> None:
    before, after, fresh = LDA(), LDA(), LDA()
    assert said(before, [1.0] * (ENOUGH - 1)) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before.peek(1.0)
    after.load(before.tensors())
    assert len(said(after, [1.0, 1.0])) == 1
    fresh.load(after.tensors())
    assert said(fresh, [1.0] * 100) == []
