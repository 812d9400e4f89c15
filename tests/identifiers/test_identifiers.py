"""DAF against a mixture fitted by hand, MSP against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from helpers.errors import raises
from ostta.identifiers import DAF, MSP, DAFOptions, MSPOptions


def bank() -> list[float]:
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(0.2, 0.02, 150), rng.normal(0.32, 0.03, 100)])
    rng.shuffle(scores)
    return scores.tolist()


def test_daf_is_the_two_component_mixture() -> None:
    scores = bank()
    identifier = DAF()
    identifier.bank.load(np.array(scores))
    for score in (0.1, 0.19, 0.21, 0.25, 0.26, 0.3, 0.4):
        decision = identifier.peek(score)
        model = GaussianMixture(2, random_state=0).fit(np.sort([*scores, score])[:, None])
        low, high = np.argsort(model.means_[:, 0])
        densities = [
            model.weights_[i] * norm.pdf(score, model.means_[i, 0], np.sqrt(model.covariances_[i, 0, 0]))
            for i in (low, high)
        ]
        assert decision.mu_undesired == pytest.approx(model.means_[low, 0])
        assert decision.mu_desired == pytest.approx(model.means_[high, 0])
        assert decision.threshold is None
        desired = densities[1] / sum(densities) >= 0.5
        mean = decision.mu_desired if desired else decision.mu_undesired
        reliable = score > mean if desired else score < mean
        assert (
            decision.verdict.value
            == f"{'reliable' if reliable else 'unreliable'}_{'desired' if desired else 'undesired'}"
        )


def test_daf_is_all_desired_until_two_scores_differ() -> None:
    identifier = DAF()
    assert [identifier.observe(0.2).verdict.value for _ in range(3)] == ["unreliable_desired"] * 3
    assert identifier.observe(0.4).mu_desired is not None


def test_daf_peek_is_pure_and_fits_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    identifier, fits = DAF(), []
    fit = DAF._fit
    monkeypatch.setattr(DAF, "_fit", lambda self, scores: fits.append(len(scores)) or fit(self, scores))
    for score in bank()[:40]:
        before = {name: value.clone() for name, value in identifier.tensors().items()}
        peeked = identifier.peek(score)
        assert all(value.equal(before[name]) for name, value in identifier.tensors().items())
        assert identifier.observe(score) == peeked
    assert len(fits) == 40


def test_daf_refits_as_often_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    identifier, fits = DAF(DAFOptions(refit=10)), []
    fit = DAF._fit
    monkeypatch.setattr(DAF, "_fit", lambda self, scores: fits.append(len(scores)) or fit(self, scores))
    for score in bank()[:60]:
        identifier.observe(score)
    assert len(fits) < 20


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("0.4/0.6/0.8", ["reliable_undesired", "unreliable_undesired", "unreliable_desired", "reliable_desired"]),
        ("0.3/0.5/0.7", ["unreliable_undesired", "unreliable_desired", "unreliable_desired", "reliable_desired"]),
        ("0.5/0.5/0.5", ["reliable_undesired", "reliable_desired", "reliable_desired", "reliable_desired"]),
    ],
)
def test_msp_by_definition(name: str, verdicts: list[str]) -> None:
    identifier = MSP(MSPOptions(thresholds=name))
    assert [identifier.observe(score).verdict.value for score in (0.35, 0.55, 0.7, 0.9)] == verdicts


def test_msp_boundaries() -> None:
    identifier = MSP(MSPOptions(thresholds="0.4/0.6/0.8"))
    assert [identifier.peek(score).verdict.value for score in (0.4, 0.6, 0.8)] == [
        "unreliable_undesired", "unreliable_desired", "unreliable_desired",
    ]  # fmt: skip


def test_wrong_options() -> None:
    with raises("option-invalid", match="refit"):
        DAFOptions(refit=0)
