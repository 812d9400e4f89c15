"""OGA and OnZeta against their formulas in double precision, and the gate that decides which images they learn from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import entr, softmax
from scipy.stats import multivariate_normal

import ostta
from helpers.cases import FixedVerdict, class_scores, same
from ostta import Verdict
from ostta.core.losses import unit

CLASSES, SCALE = 6, 20.0
Floats = NDArray[np.float64]


def texts(width: int) -> torch.Tensor:
    return unit(torch.randn(CLASSES, width, generator=torch.Generator().manual_seed(0)))


def stream(text: torch.Tensor, count: int) -> list[tuple[torch.Tensor, Verdict]]:
    """Features near the first five class embeddings, each with a random verdict."""
    chance = torch.Generator().manual_seed(1)
    labels = torch.randint(CLASSES - 1, (count,), generator=chance)
    noise = torch.randn(count, text.shape[1], generator=chance) / math.sqrt(text.shape[1])
    verdicts = torch.randint(4, (count,), generator=chance).tolist()
    return list(zip(unit(text[labels] + noise), [list(Verdict)[number] for number in verdicts], strict=True))


def adapter(method: str, text: torch.Tensor, scale: float = SCALE, **options: object) -> ostta.Adapter:
    names = [f"class {number}" for number in range(CLASSES)]
    return ostta.load(ostta.backbones.wrap(None, text, logit_scale=scale), names, method, class_scores=True, **options)


def step(one: ostta.Adapter, features: torch.Tensor, verdict: Verdict) -> ostta.Prediction:
    one.memory.identifier = FixedVerdict(verdict)  # type: ignore[assignment]
    return one.step_features(features)


# --- OGA --------------------------------------------------------------------------------------------------------------
class GaussianReference:
    """Lists of cached features, an explicit covariance matrix, and the Gaussian density of SciPy."""

    def __init__(self, text: Floats, mean_over: str) -> None:
        self.text, self.mean_over = text, mean_over
        self.cached: list[list[tuple[float, Floats]]] = [[] for _ in text]
        self.estimators: set[str] = set()

    def probabilities(self, f: Floats) -> Floats:
        means = [self._mean(label) for label in range(CLASSES)]
        covariance = self._covariance(means)
        density = multivariate_normal(cov=covariance).logpdf(f - np.array(means))
        joint = softmax(SCALE * self.text @ f) * softmax(0.05 * density)
        return joint / joint.sum()

    def learn(self, f: Floats) -> None:
        prior = softmax(SCALE * self.text @ f)
        entries = self.cached[int(prior.argmax())]
        entries.append((float(entr(prior).sum()), f))
        entries.sort(key=lambda entry: entry[0])
        del entries[8:]

    def _mean(self, label: int) -> Floats:
        features = [f for _, f in self.cached[label]]
        if len(features) < 2:
            return self.text[label]
        return np.sum(features, axis=0) / (8 if self.mean_over == "shots" else len(features))

    def _covariance(self, means: list[Floats]) -> Floats:
        width = self.text.shape[1]
        deviations = [f - means[label] for label, entries in enumerate(self.cached) for _, f in entries]
        if max(map(len, self.cached)) < 3:
            self.estimators.add("initial")
            return np.eye(width) / width
        n, sample = len(deviations), np.cov(np.transpose(deviations))
        if n > 4 * width:
            self.estimators.add("sample")
            return sample
        self.estimators.add("wide" if n < width else "tall")
        return ((n - 1) * sample + np.trace(sample) * np.eye(width)) / width


@pytest.mark.parametrize(
    ("width", "mean_over", "estimators"),
    [(64, "shots", {"initial", "wide"}), (24, "stored", {"initial", "wide", "tall"}), (6, "shots", {"sample"})],
)
def test_oga_gives_the_probabilities_of_its_formula(width: int, mean_over: str, estimators: set[str]) -> None:
    text = texts(width)
    one, reference = adapter("oga", text, mean_over=mean_over), GaussianReference(text.double().numpy(), mean_over)
    for features, verdict in stream(text, 150):
        f = features.double().numpy()
        expected = reference.probabilities(f)
        np.testing.assert_allclose(class_scores(step(one, features, verdict)).exp(), expected, atol=2e-4)
        if verdict.desired:
            reference.learn(f)
    assert max(map(len, reference.cached)) == 8
    assert estimators <= reference.estimators


def test_oga_keeps_the_class_of_identical_images() -> None:
    """The deviations of identical features are zero, and a covariance of zeros has no inverse."""
    text = texts(16)
    one = adapter("oga", text, mean_over="stored")
    found = [step(one, text[2], Verdict.RELIABLE_DESIRED) for _ in range(20)]
    assert {prediction.index for prediction in found} == {2}
    assert all(torch.isfinite(class_scores(prediction)).all() for prediction in found)


# --- OnZeta -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("learn_from", ["known", "all"])
def test_every_step_of_onzeta_follows_its_formula(learn_from: str) -> None:
    """The weight of the second classifier is the published one of a stream with 8 images per class, and then stays at
    its maximum.

    Each step starts from the adapter's own state, because the large first steps amplify rounding errors from image to
    image.
    """
    text = texts(24)
    one = adapter("onzeta", text, learn_from=learn_from, ramp=8)
    fixed = text.double().numpy()
    moved, rho, t, length = fixed.copy(), np.zeros(CLASSES), 1, 8 * CLASSES
    for features, verdict in stream(text, 3 * length):
        f = features.double().numpy()
        p = softmax(SCALE * fixed @ f) * np.exp(rho)
        p /= p.sum()
        q = softmax(moved @ f / 0.04)
        weight = 0.8 * math.sqrt(min(t, length) / length)
        expected = weight * q + (1 - weight) * p
        np.testing.assert_allclose(class_scores(step(one, features, verdict)).exp(), expected, atol=1e-5)
        if learn_from == "all" or verdict.desired:
            rho = np.maximum(rho - 20 / math.sqrt(t) * (p - 1 / CLASSES), 0)
            moved -= 0.5 / math.sqrt(t) / 0.04 * np.outer(q - p, f)
            moved /= np.linalg.norm(moved, axis=1, keepdims=True)
            t += 1
        found = one.state.tensors()
        np.testing.assert_allclose(found["duals"], rho, atol=1e-4)
        np.testing.assert_allclose(found["classifier"], moved, atol=1e-4)
        rho, moved = (found[name].double().numpy() for name in ("duals", "classifier"))
    assert length < t == int(found["images"]) + 1
    assert rho.max() > 1


def test_scaled_constants_follow_the_logit_scale() -> None:
    text = texts(24)
    scaled = adapter("onzeta", text, 25.0, constants="scaled").method
    assert (scaled.balance_rate, scaled.temperature) == (5.0, 0.16)
    published, equal = (adapter("onzeta", text, 100.0, constants=name) for name in ("published", "scaled"))
    for features, verdict in stream(text, 20):
        assert torch.equal(*(class_scores(step(one, features, verdict)) for one in (published, equal)))


# --- both -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["oga", "onzeta"])
@pytest.mark.parametrize(
    ("learn_from", "learned"),
    [
        ("known", {Verdict.RELIABLE_DESIRED, Verdict.UNRELIABLE_DESIRED}),
        ("reliable", {Verdict.RELIABLE_DESIRED}),
        ("all", set(Verdict)),
    ],
)
def test_only_images_with_these_verdicts_are_learned_from(method: str, learn_from: str, learned: set[Verdict]) -> None:
    text = texts(24)
    one = adapter(method, text, learn_from=learn_from)
    for number, verdict in enumerate(Verdict):
        before = one.state.tensors()
        prediction = step(one, text[number], verdict)
        assert same(before, one.state.tensors()) == (verdict not in learned)
        assert ("does not learn" in str(prediction.reason)) == (verdict not in learned)


@pytest.mark.parametrize("method", ["oga", "onzeta"])
def test_the_score_is_the_largest_cosine_or_probability(method: str) -> None:
    text = texts(24)
    cosine, probability = (adapter(method, text, score_of=name) for name in ("cosine", "probability"))
    for features, verdict in stream(text, 30):
        assert step(cosine, features, verdict).score == pytest.approx(float((text @ features).max()))
        found = step(probability, features, verdict)
        assert found.score == pytest.approx(float(class_scores(found).exp().max()))
