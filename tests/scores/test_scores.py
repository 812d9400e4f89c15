"""Scores: how they are chosen, what they say, and AdaND's detector against its published algorithm."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ostta
from helpers.cases import CLASSES, adapter, backbone, images
from helpers.errors import raises
from ostta import Error, Verdict
from ostta.config.registry import find_components
from ostta.core.types import Decision, Look, Preprocessing, Scored
from ostta.scores import Detector, DetectorOptions, Max, MaxOptions, Setting


# --- which score ------------------------------------------------------------------------------------------------------
def test_without_a_score_it_is_the_identifiers_or_max() -> None:
    assert find_components("rosita", None, "lda").score.name == "max"
    assert find_components("rosita", None, "msp").score.name == "msp"
    assert find_components("zero_shot", None, "adand").score.name == "detector"
    assert find_components("zero_shot", "msp", "lda").score.name == "msp"


@pytest.mark.parametrize(("score", "identifier"), [("max", "msp"), ("energy", "msp"), ("max", "adand")])
def test_an_identifier_that_judges_one_score_refuses_others(score: str, identifier: str) -> None:
    needed = {"msp": "msp", "adand": "detector"}[identifier]
    said = f"^The identifier '{identifier}' requires the score '{needed}', not '{score}'\\.$"
    with raises("components-incompatible", match=said):
        ostta.load(backbone("wrapped"), CLASSES, score=score, identifier=identifier)


def test_a_score_that_is_not_there_is_a_sentence() -> None:
    with raises("score-unknown"):
        ostta.load(backbone("wrapped"), CLASSES, score="maxx")
    with raises("component-invalid"):
        ostta.load(backbone("wrapped"), CLASSES, score=int)


class Halved(Max):
    """A score of somebody's own, and not confined."""

    Options = dataclasses.make_dataclass("HalvedOptions", [("window", int, 3)], frozen=True)
    about = "half of the best logit"

    def __init__(self, options: object, setting: Setting) -> None:
        self.scale = None

    def value(self, look: Look) -> Scored:
        whole = super().value(look).value
        return Scored(whole / 2 - 7, {"whole": whole})


def test_a_score_of_ones_own_and_lda_searches_exactly() -> None:
    plain = ostta.load(backbone("wrapped"), CLASSES, "zero_shot", search="exact")
    own = ostta.load(backbone("wrapped"), CLASSES, "zero_shot", score=Halved)
    for image in images(30):
        expected, found = plain.step(image), own.step(image)
        assert found.verdict == expected.verdict
        assert found.evidence == {"whole": expected.score}
        assert found.threshold == pytest.approx(expected.threshold / 2 - 7)


def test_an_option_of_two_owners_is_named_with_its_owner() -> None:
    with pytest.raises(
        Error, match=r"^`window` is an option of the score and of the identifier: write `score.window` or"
    ):
        ostta.load(backbone("wrapped"), CLASSES, score=Halved, window=9)
    one = ostta.load(backbone("wrapped"), CLASSES, score=Halved, options={"score.window": 9})
    assert (one.resolved.score.window, one.resolved.identifier.window) == (9, 512)
    assert one.resolved.sources["score"]["window"] == "explicit"


def test_a_state_keeps_the_score_and_a_foreign_one_must_be_given(tmp_path: Path) -> None:
    one = ostta.load(backbone("wrapped"), CLASSES, "zero_shot", score="detector", detector_lr=0.01)
    list(one.stream(images(20)))
    one.save(tmp_path / "a.ostta")
    again = ostta.Adapter.restore(tmp_path / "a.ostta", one.backbone)
    assert (again.score_name, again.resolved.score.detector_lr) == ("detector", 0.01)
    own = ostta.load(backbone("wrapped"), CLASSES, score=Halved)
    own.save(tmp_path / "b.ostta")
    with raises("component-not-registered"):
        ostta.Adapter.restore(tmp_path / "b.ostta", own.backbone)
    assert ostta.Adapter.restore(tmp_path / "b.ostta", own.backbone, score=Halved).score_name == own.score_name


def test_evidence_is_in_the_json() -> None:
    prediction = adapter("zero_shot", "adand").step(images(1)[0])
    assert set(json.loads(prediction.to_json())["evidence"]) == {"class", "unknown", "threshold"}


# --- AdaND ------------------------------------------------------------------------------------------------------------
def published(
    features: np.ndarray, cosines: np.ndarray, scale: float, noise: np.ndarray, noise_cosines: np.ndarray, options
):
    """The published loop in torch, image by image, with a noise image after every eighth.

    The values it ranks by, and its flags.
    """
    layer = nn.Linear(features.shape[1], 2).double()
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    adam = torch.optim.Adam(layer.parameters(), lr=options.detector_lr)
    first, second, buffer, values, flags, t = [], [], [], [], [], 0

    def otsu(scores: list[float]) -> float:
        best, found = math.inf, 0.0
        array = np.array(scores[-512:])
        for candidate in np.arange(100) * 0.01:
            low, high = array[array <= candidate], array[array > candidate]
            if len(low) and len(high):
                cost = len(low) * low.var() + len(high) * high.var()
                if cost < best - 1e-12:
                    best, found = cost, candidate
        return found

    def item(f: np.ndarray, z: np.ndarray, synthetic: bool) -> tuple[float, bool]:
        nonlocal t
        doubt = 1 - float(torch.softmax(scale * torch.from_numpy(z).float(), 0).max())
        first.append(doubt)
        unknown = synthetic or doubt > otsu(first)
        output = layer(torch.from_numpy(options.length * f).double())
        buffer.append((output, int(not unknown)))
        del buffer[: -options.detector_batch]
        score = doubt
        flag = doubt > otsu(first)
        if t > options.blind:
            score = float(torch.softmax(output.detach(), 0)[0])
            second.append(score)
            flag = score > otsu(second)
        if t > 0 and t % options.detector_batch == 0:
            adam.zero_grad()
            outputs, labels = torch.stack([each for each, _ in buffer]), torch.tensor([label for _, label in buffer])
            nn.functional.cross_entropy(outputs, labels).backward()
            adam.step()
        t += 1
        return 1 - score, flag

    for number, (f, z) in enumerate(zip(features, cosines, strict=True), start=1):
        value, flag = item(f, z, False)
        values.append(value)
        flags.append(flag)
        if number % 8 == 0:
            place = (number // 8) % len(noise)
            item(noise[place], noise_cosines[place], True)
    return values, flags


def test_the_detector_is_the_published_one() -> None:
    """If the batch size divides the stream, the buffer holds only images since the last step: both see the same."""
    rng = np.random.default_rng(0)
    classifier = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(5, 12))).float(), dim=1)

    def encode(images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1)
        return nn.functional.normalize(flat[:, :12] + 0.3 * flat[:, 12:24], dim=1)

    setting = Setting(classifier, 10.0, 1.0, Preprocessing(4, (0.5,) * 3, (0.2,) * 3), encode)
    options = DetectorOptions(detector_batch=16, blind=64, detector_lr=0.01)
    one = Detector(options, setting)
    features = nn.functional.normalize(
        classifier[torch.arange(200) % 5] * torch.from_numpy(rng.uniform(0, 1, (200, 1)).round()).float()
        + torch.from_numpy(rng.normal(0, 0.3, (200, 12))).float(),
        dim=1,
    )
    noise = one._noise[:, :-1]
    expected, flags = published(
        features.double().numpy(),
        (features @ classifier.T).numpy(),
        10.0,
        noise,
        noise.astype(np.float32) @ classifier.numpy().T,
        options,
    )
    for number, row in enumerate(features):
        look = Look(None, row, row @ classifier.T, row @ classifier.T, None)
        scored = one.value(look)
        assert scored.value == pytest.approx(expected[number], abs=1e-6), number
        decision = ostta.identifiers.AdaND().peek(scored.value, scored.evidence)
        assert decision.desired != flags[number], number
        one.remember(look, scored, Decision(Verdict.UNRELIABLE_DESIRED, None, None, None))


def test_the_detector_needs_a_tower() -> None:
    without = ostta.backbones.wrap(None, torch.randn(3, 8))
    with raises("image-tower-missing", match="use `noise_every=0`"):
        ostta.load(without, ["a", "b", "c"], "zero_shot", score="detector")
    assert ostta.load(without, ["a", "b", "c"], "zero_shot", score="detector", noise_every=0)


def test_max_takes_what_the_method_names() -> None:
    look = Look(None, torch.zeros(2), torch.tensor([0.1, 0.2]), torch.tensor([3.0, 4.0]), None, torch.tensor([0.5]))
    setting = Setting(torch.zeros(2, 2), 100.0, 1.0, Preprocessing(4, (0.5,) * 3, (0.2,) * 3), lambda images: images)
    assert Max(MaxOptions(), setting).value(look).value == 0.5


# --- energy and MCM ---------------------------------------------------------------------------------------------------
def test_energy_and_mcm_by_hand() -> None:
    """Cosines 0.6 and 0.8 at a logit scale of 10.

    Log(e^6 + e^8) = 8 + log(1 + e^-2), and 1 / (1 + e^-0.2) at temperature 1.
    """
    none = ostta.backbones.wrap(None, torch.eye(2), logit_scale=10)

    def score(**options: object) -> float:
        return ostta.load(none, ["ant", "bee"], "zero_shot", **options).step_features([0.6, 0.8]).score

    assert score(score="energy") == pytest.approx(8 + math.log1p(math.exp(-2)))
    assert score(score="mcm") == pytest.approx(1 / (1 + math.exp(-0.2)))
    assert score(score="mcm", softmax_temperature=0.5) == pytest.approx(1 / (1 + math.exp(-0.4)))
    assert score(score="mcm", softmax_temperature=0.1) == pytest.approx(score(score="msp"))


def test_lda_separates_mcm_scores_that_differ_by_thousandths() -> None:
    """The scores 0.015 and 0.012 lie between two neighbouring points of a grid of hundredths."""
    none = ostta.backbones.wrap(None, torch.eye(100), logit_scale=10)
    one = ostta.load(none, [f"class {number}" for number in range(100)], "zero_shot", score="mcm")
    near, far = (torch.eye(100)[3] * height + 0.02 for height in (0.1, 0.05))
    found = [one.step_features(features) for features in (near, far) * 10]
    assert all(0.01 < prediction.score < 0.02 for prediction in found)
    assert [prediction.known for prediction in found[2:]] == [True, False] * 9
