"""Scores: how they are chosen, and what they say."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

import ostta
from helpers.cases import CLASSES, adapter, backbone, images
from helpers.errors import raises
from ostta import Error
from ostta.config.registry import find_components
from ostta.core.types import Look, Preprocessing, Scored
from ostta.scores import Max, MaxOptions, Setting


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
