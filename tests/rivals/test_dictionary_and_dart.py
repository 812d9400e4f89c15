"""The scores `dictionary` and `dart`: small streams worked out by hand, what they remember, and what they refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostta
from ostta import Error, Verdict
from ostta.core.types import Decision, Look, Preprocessing
from ostta.rivals import Dart, DartOptions, Dictionary, DictionaryOptions
from ostta.rivals.dictionary import LowestFeatures
from ostta.scores import Setting

KNOWN, UNKNOWN = Verdict.RELIABLE_DESIRED, Verdict.RELIABLE_UNDESIRED
# Two classes on the first two axes; the third axis is what no class has.
CLASSIFIER = torch.eye(3)[:2]


def setting(logit_scale: float = 10.0) -> Setting:
    plain = Preprocessing(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return Setting(CLASSIFIER, logit_scale, 1.0, plain, lambda images: torch.zeros(len(images), 3))


def look(*numbers: float) -> Look[Any]:
    features = torch.tensor([float(number) for number in numbers]) / math.sqrt(sum(number**2 for number in numbers))
    cosines = CLASSIFIER @ features
    return Look(None, features, cosines, cosines, None)  # type: ignore[arg-type]


def step(score: Any, one: Look[Any], verdict: Verdict = Verdict.UNRELIABLE_DESIRED) -> float:
    scored = score.value(one)
    score.remember(one, scored, Decision(verdict, None, None, None))
    return float(scored.value)


def wrapped(**options: Any) -> ostta.Adapter:
    return ostta.load(ostta.backbones.wrap(None, torch.eye(3)), ["ant", "bee", "cat"], "zero_shot", **options)


# --- dictionary -----------------------------------------------------------------------------------------------------
def softmax(*z: float) -> float:
    return math.exp(max(z)) / sum(map(math.exp, z))


def test_the_dictionary_by_hand() -> None:
    """Capacity 3, second nearest.

    Base scores at temperature 1: (1,0,0) 0.731, (.6,.8,0) 0.550, (0,0,1) 0.5, (0,.6,.8) 0.646.
    """
    score = Dictionary(DictionaryOptions(capacity=3, kth=2), setting())
    a, b, c, d = (1.0, 0.0, 0.0), (0.6, 0.8, 0.0), (0.0, 0.0, 1.0), (0.0, 0.6, 0.8)
    # Fewer than two in it: the base score alone, and an image is not its own neighbour.
    assert step(score, look(*a)) == pytest.approx(softmax(1, 0))
    assert step(score, look(*b)) == pytest.approx(softmax(0.6, 0.8))
    # {a, b}: of d, 0 and .48, the second largest is 0; of c, 0 and 0.
    assert step(score, look(*d)) == pytest.approx(softmax(0, 0.6) - 0.0)
    # {a, b, d}: of c, 0, 0 and .8.
    assert step(score, look(*c)) == pytest.approx(softmax(0, 0) - 0.0)
    # c has the lowest base score and takes the place of a, which has the highest: {c, b, d}. Of a: 0, .6, 0.
    assert score.value(look(*a)).value == pytest.approx(softmax(1, 0) - 0.0)
    # Of d: .8, .48, 1.
    found = score.value(look(*d))
    assert found.value == pytest.approx(softmax(0, 0.6) - 0.8)
    assert found.evidence == {"class": pytest.approx(softmax(0, 0.6)), "unknown": pytest.approx(0.8)}
    # a is the highest again, and does not enter.
    before = score.tensors()
    step(score, look(*a))
    assert all(tensor.equal(before[name]) for name, tensor in score.tensors().items())


@pytest.mark.parametrize(("base", "value"), [("softmax", softmax(0.6, 0.8)), ("max", 0.8), ("msp", softmax(6, 8))])
def test_the_base_scores(base: Any, value: float) -> None:
    score = Dictionary(DictionaryOptions(base=base), setting())
    assert score.value(look(0.6, 0.8, 0.0)).value == pytest.approx(value)


def test_with_the_published_base_the_ranking_is_that_of_the_likeness_alone() -> None:
    """As a CLIP has it: ten classes, cosines of images to texts between .18 and .30."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 64))
    rows[::2] += 1.0  # half of the images are of one kind, which are more alike
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    texts = rng.normal(size=(10, 64)) * 0.03
    plain = Preprocessing(8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    made = Setting(torch.from_numpy(texts).float(), 100.0, 1.0, plain, lambda images: images)
    score = Dictionary(DictionaryOptions(), made)
    values, likeness = [], []
    for number, row in enumerate(torch.from_numpy(rows).float()):
        cosines = 0.24 + made.classifier @ row
        one = Look(None, row, cosines, cosines, None)  # type: ignore[arg-type]
        scored = score.value(one)
        if number >= 100:
            values.append(scored.value)
            likeness.append(-scored.evidence["unknown"])
        step(score, one)
    assert np.corrcoef(values, likeness)[0, 1] > 0.999


def test_the_memory_of_the_lowest_against_sorting() -> None:
    rng = np.random.default_rng(1)
    memory, seen = LowestFeatures(20, 4), []
    for _ in range(300):
        row = rng.normal(size=4).astype(np.float32)
        row /= np.linalg.norm(row)
        number = float(rng.integers(0, 60))
        memory.push(row, number)
        seen.append(number)
        assert sorted(memory.tensors()["scores"].tolist()) == sorted(seen)[:20]
    assert memory.features.shape == (20, 4)
    again = LowestFeatures(20, 4)
    again.load(memory.tensors())
    again.push(row, -1.0)
    memory.push(row, -1.0)
    assert all(tensor.equal(again.tensors()[name]) for name, tensor in memory.tensors().items())


# --- dart -----------------------------------------------------------------------------------------------------------
OPTIONS = DartOptions(gather=4, kept=6, follow=0.5, flip_every=0)
FIRST = ((1.0, 0.0, 0.0), (0.8, 0.0, 0.6), (0.0, 0.28, 0.96), (0.0, 0.0, 1.0))


def begun(**options: Any) -> Dart:
    score = Dart(DartOptions(**{**vars(OPTIONS), **options}), setting())
    for numbers in FIRST:
        step(score, look(*numbers))
    return score


def test_dart_by_hand() -> None:
    """Best cosines 1, .8, .28 and 0.

    The upper two make the prototype of known images, the lower two that of unknown ones.
    """
    score = Dart(OPTIONS, setting())
    fits = [1.0, 0.8, 0.28, 0.0]
    for number, numbers in enumerate(FIRST):
        before = np.array(fits[:number])
        expected = (fits[number] - before.mean()) / before.std() if number > 1 else 0.0
        assert step(score, look(*numbers)) == pytest.approx(expected, rel=1e-5)
    known, unknown = np.array([1.8, 0.0, 0.6]), np.array([0.0, 0.28, 1.96])
    known, unknown = known / np.linalg.norm(known), unknown / np.linalg.norm(unknown)
    axes = np.array(FIRST) @ (known - unknown)
    image = np.array([0.6, 0.8, 0.0])
    r = image @ (known - unknown)
    expected = (0.8 - np.mean(fits)) / np.std(fits) + (r - axes.mean()) / axes.std()
    found = score.value(look(*image))
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert (found.evidence["known"], found.evidence["unknown"]) == pytest.approx(
        (image @ known, image @ unknown), rel=1e-5
    )
    # A reliable known image moves the one prototype half the way, a reliable unknown one the other, others none.
    step(score, look(*image))
    step(score, look(*image), KNOWN)
    moved = known + image
    expected = image @ moved / np.linalg.norm(moved)
    assert score.value(look(*image)).evidence["known"] == pytest.approx(expected, rel=1e-5)
    assert score.value(look(*image)).evidence["unknown"] == pytest.approx(image @ unknown, rel=1e-5)
    step(score, look(*image), UNKNOWN)
    moved = unknown + image
    assert score.value(look(*image)).evidence["unknown"] == pytest.approx(
        image @ moved / np.linalg.norm(moved), rel=1e-5
    )


def test_the_scale_of_the_cosines_does_not_matter() -> None:
    """Multiplied alike, features' cosines give the same values: a threshold means the same on every backbone."""
    one, other = begun(), begun()
    stretched = Setting(0.1 * CLASSIFIER, 10.0, 1.0, setting().preprocessing, setting().encode)
    other = Dart(OPTIONS, stretched)
    for numbers in (*FIRST, (0.6, 0.8, 0.0), (0.0, 0.6, 0.8)):
        plain = look(*numbers)
        less = Look(None, plain.features, 0.1 * plain.cosines, plain.logits, None)  # type: ignore[arg-type]
        if numbers not in FIRST:
            assert one.value(plain).value == pytest.approx(other.value(less).value, rel=1e-4)
            step(one, plain)
        step(other, less)


def test_a_flipped_axis_is_turned_and_a_meaningless_one_left_out() -> None:
    score = begun(kept=8, flip_every=8)
    for numbers in ((0.0, 1.0, 0.0), (0.0, 0.99, 0.14), (0.9, 0.0, -0.43), (0.2, -0.9, -0.3)):
        step(score, look(*numbers))
    fits, axes = score._fits.scores(), score._axes.scores()
    correlation = np.corrcoef(fits, axes)[0, 1]
    assert score._sign == (0 if abs(correlation) < 0.1 else np.sign(correlation))
    turned = begun(kept=4, flip_every=8)
    # The best cosine is high where the axis is low.
    for numbers in ((0.0, 1.0, 0.0), (0.1, 0.9, 0.1), (0.2, 0.0, -0.98), (0.0, 0.0, -1.0)):
        step(turned, look(*numbers))
    assert turned._sign == -1
    still = begun(kept=4, flip_every=4, flip_below=1.0)
    for _ in range(4):
        step(still, look(0.5, 0.5, 0.5))
    assert still._sign == 0
    assert still.value(look(1.0, 0.0, 0.0)).value == 0.0


def test_images_that_are_all_alike_make_no_prototypes() -> None:
    score = Dart(OPTIONS, setting())
    for _ in range(10):
        assert step(score, look(1.0, 0.0, 0.0)) == 0.0
    assert score._prototypes is None
    again = Dart(OPTIONS, setting())
    again.load(score.tensors())
    # The last four are now not all alike: the rows and the numbers belong together, whatever the ring's place.
    for each in (score, again):
        step(each, look(0.0, 0.0, 1.0))
        assert each._prototypes == pytest.approx(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))


# --- both -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["dictionary", "dart"])
def test_they_tell_a_crowd_of_unknown_images_from_known_ones(name: str) -> None:
    """Unknown images around one direction that fits a class half-way, as known ones do under a corruption."""
    rng = np.random.default_rng(0)
    adapter = wrapped(score=name, options={"gather": 32} if name == "dart" else {"capacity": 100, "base": "max"})
    plain = wrapped(score="max")
    labels, scores, fits = [], [], []
    for number in range(600):
        known = bool(rng.integers(0, 2))
        centre = np.eye(3)[int(rng.integers(0, 2))] if known else np.array([0.45, 0.45, 0.77])
        row = centre + rng.normal(size=3) * (0.35 if known else 0.15)
        row = torch.from_numpy(row / np.linalg.norm(row)).float()
        found = adapter.step_features(row).score
        fit = plain.step_features(row).score
        if number >= 200:
            labels.append(known), scores.append(found), fits.append(fit)

    def auroc(values: list[float]) -> float:
        known, unknown = (np.array(values)[np.array(labels) == side] for side in (True, False))
        return float((known[:, None] > unknown[None]).mean())

    assert auroc(scores) > auroc(fits) + 0.02


@pytest.mark.parametrize("name", ["dictionary", "dart"])
def test_a_state_goes_on_as_if_nothing_had_been(name: str, tmp_path: Path) -> None:
    options = {"gather": 8, "kept": 16} if name == "dart" else {"capacity": 8}
    rng = np.random.default_rng(3)
    rows = [torch.from_numpy(row / np.linalg.norm(row)).float() for row in rng.normal(size=(60, 3))]
    for before in (5, 30):
        one = wrapped(score=name, options=options)
        for row in rows[:before]:
            one.step_features(row)
        one.save(tmp_path / "state.ostta")
        again = ostta.Adapter.restore(tmp_path / "state.ostta", backbone=one.backbone)
        assert [one.step_features(row).score for row in rows] == [again.step_features(row).score for row in rows]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("dictionary", {"capacity": 4}, "`capacity` (4) must be at least `kth` (5)"),
        ("dictionary", {"capacity": 10**9}, "`capacity` must be from 1 to 65,536"),
        ("dictionary", {"base": "energy"}, "one of softmax, max, msp"),
        ("dart", {"kept": 10}, "`kept` (10) must be at least `gather` (64)"),
        ("dart", {"follow": 0}, "`follow` must be above 0"),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as caught:
        wrapped(score=name, options=options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("dictionary", {"scores": torch.full((5,), math.nan, dtype=torch.float64)}, "damaged"),
        ("dictionary", {"rows": torch.ones(5, 3)}, "length one"),
        ("dictionary", {"rows": torch.ones(4, 3)}, "needs float32 of shape [5, 3]"),
        ("dart", {"axis/prototypes": torch.full((2, 3), 9.0, dtype=torch.float64)}, "a prototype is longer than 1"),
        ("dart", {"counts/images": torch.tensor(3)}, "do not agree"),
        ("dart", {"counts/sign": torch.tensor(7)}, "damaged"),
        ("dart", {"axis/prototypes": torch.zeros(1, 3, dtype=torch.float64)}, "of shape [2, 3]"),
    ],
)
def test_damaged_tensors_are_refused_and_change_nothing(name: str, change: dict[str, torch.Tensor], words: str) -> None:
    score: Any = Dictionary(DictionaryOptions(capacity=5), setting()) if name == "dictionary" else begun()
    for numbers in (*FIRST, (0.6, 0.8, 0.0)):
        step(score, look(*numbers))
    before = score.tensors()
    with pytest.raises(Error) as caught:
        score.load({**before, **change})
    assert words in str(caught.value)
    assert all(tensor.equal(before[key]) for key, tensor in score.tensors().items())
