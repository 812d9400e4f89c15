"""What the adapter and ROSITA promise beyond the conformance suite."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ostta
from helpers.cases import (
    CLASSES,
    FixedVerdict,
    SmallTower,
    adapter,
    backbone,
    class_scores,
    content,
    images,
    learned,
    same,
    trace,
)
from helpers.errors import raises
from ostta import Error, ImageError, InUseError, Verdict
from ostta.config.registry import ALL_IDENTIFIERS as IDENTIFIERS
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.config.registry import ALL_SCORES as SCORES
from ostta.config.resolve import list_options_classes
from ostta.core.losses import cosines
from ostta.core.types import Look
from ostta.methods.entropy import Entropy
from ostta.methods.rosita import RositaOptions
from ostta.sources.source import missing_item


def test_gradients_reach_only_the_layernorms() -> None:
    one = adapter("rosita", lr=0.1)
    before = one.state.overlay.stored()
    for image in images(60):
        one.step(image)
    assert set(before) == {"norm.weight", "norm.bias", "mix.2.weight", "mix.2.bias"}
    assert all(not one.state.overlay.tensors[name].equal(before[name]) for name in before)
    assert all(parameter.grad is None for parameter in one.backbone.vision.parameters())


def test_a_loss_that_is_not_finite_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    one = adapter("rosita")
    for image in images(60):
        one.step(image)
    monkeypatch.setattr("ostta.methods.rosita.pseudo_label_loss", lambda z, *_: z.sum() * math.inf)
    before, refused = content(one), 0
    for image in images(60):
        prediction = one.step(image)
        if prediction.verdict is Verdict.RELIABLE_DESIRED:
            refused += 1
            assert (prediction.adapted, prediction.loss) == (False, None)
            assert prediction.reason == "the loss or its gradient is not finite"
            assert prediction.label is not None
            assert same(before, content(one))
        before = content(one)
    assert refused


@pytest.mark.parametrize("trouble", [MemoryError, KeyboardInterrupt])
def test_a_step_that_breaks_off_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, trouble) -> None:
    one, broken = adapter("rosita"), 0
    for image in images(60):
        one.step(image)

    def loss(*_):
        raise trouble

    monkeypatch.setattr("ostta.methods.rosita.pseudo_label_loss", loss)
    for image in images(60):
        before = content(one)
        try:
            one.step(image)
        except trouble:
            broken += 1
            assert same(before, content(one))
    assert broken


def test_rejected_images_keep_the_answer_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    one = adapter("unient")
    monkeypatch.setattr(one.method, "answer", lambda *given: -given[-1] @ given[-2].overlay.classifier.T)
    for image in images(30):
        best = one.predict(image).index
        prediction = one.step(image)
        assert prediction.adapted
        assert (prediction.index == best) == (not prediction.known)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lrr": 1}, "did you mean 'lr'"),
        ({"lr": "fast"}, "must be a number"),
        ({"lr": 0}, "`lr` must be above 0, not 0"),
        ({"lr": float("nan")}, "must be a number"),
        ({"k": 1.5}, "whole number"),
        ({"k": 0}, "`k` must be from 1 to 10,000, not 0"),
        ({"losses": "re,x"}, "not 'x'"),
        ({"normaliser": "both"}, "one of k, matches"),
        ({"undesired_bank": 5}, "must exceed"),
        ({"window": 1}, "`window` must be from 2 to 1,000,000, not 1"),
        ({"k": 10**9}, "`k` must be from 1 to 10,000, not 1000000000"),
        ({"undesired_bank": 10**9}, "`undesired_bank` must be from 2 to 1,000,000"),
        ({"rank": 10**9}, "`rank` must be from 1 to 1,024"),
        ({"window": 10**9}, "`window` must be from 2 to 1,000,000"),
        ({"method": "prototypes", "pool": 10**9}, "`pool` must be from 6 to 1,000,000"),
        ({"method": "tda", "shots": 10**9}, "`shots` must be from 1 to 10,000"),
        ({"method": "tda", "negative_shots": 10**9}, "`negative_shots` must be from 0 to 10,000"),
        ({"method": "dpe", "shots": 10**9}, "`shots` must be from 1 to 10,000"),
        ({"method": "tpt", "views": 10**9}, "`views` must be from 2 to 1,024"),
        ({"method": "tpt_c", "views": 10**9}, "`views` must be from 2 to 1,024"),
        ({"identifier": "daf", "window": 10**9}, "`window` must be from 2 to 1,000,000"),
        ({"identifier": "daf", "fit_seed": -1}, "`fit_seed` must be from 0 to 4,294,967,295"),
        ({"lr": 1e39}, "must be a number"),
        ({"seed": -1}, "The seed is a whole number from 0"),
        ({"seed": 2**64}, "The seed is a whole number from 0"),
        ({"seed": "one"}, "The seed is a whole number from 0"),
        ({"class_scores": "perhaps"}, "true or false"),
        ({"templates": "a photo"}, "{}"),
    ],
)
def test_wrong_options_are_sentences(options: dict, words: str) -> None:
    with pytest.raises(Error) as caught:
        ostta.load(backbone("embedded"), CLASSES, **{"method": "rosita", **options})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ([], "at least one name"),
        (["cat", ""], "not empty"),
        (["cat", "dog", "cat"], "are the same"),
        (["sea cow", "Sea_cow"], "are the same"),
        ("cat", "must be a list"),
        (["cat", 3], "not empty"),
    ],
)
def test_wrong_classes_are_sentences(classes, words: str) -> None:
    with raises("classes-invalid") as caught:
        ostta.load(backbone("embedded"), classes, method="rosita")
    assert words in str(caught.value)


def test_unknown_names_are_sentences() -> None:
    for keywords, words in (
        ({"method": "rosta"}, "'rosita'"),
        ({"identifier": "ldq"}, "'lda'"),
        ({"profile": "x"}, "paper"),
    ):
        with pytest.raises(Error) as caught:
            ostta.load(backbone("wrapped"), CLASSES, **keywords)
        assert words in str(caught.value)


def test_precedence_of_options() -> None:
    plain = adapter("rosita").resolved
    assert (plain.method, plain.sources["method"]["lr"]) == (RositaOptions(), "default")
    paper = adapter("rosita", profile="paper").resolved
    assert (paper.method.contrast_weight, paper.identifier.objective) == (1.0, "unweighted")
    assert paper.sources["method"]["contrast_weight"] == "profile"
    explicit = adapter("rosita", profile="paper", contrast_weight="0.25", losses="re,u").resolved
    assert (explicit.method.contrast_weight, explicit.method.losses) == (0.25, ("re", "u"))
    assert explicit.sources["method"]["contrast_weight"] == "explicit"


def test_backbone_default_beats_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone("wrapped"), "defaults", {"rosita": {"lr": 0.5, "contrast_weight": 0.7}})
    resolved = adapter("rosita", profile="paper", lr=0.1).resolved
    assert (resolved.method.lr, resolved.sources["method"]["lr"]) == (0.1, "explicit")
    assert (resolved.method.contrast_weight, resolved.sources["method"]["contrast_weight"]) == (0.7, "backbone")


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "paper"},
        {"neighbours": "without_self"},
        {"desired_bank": "per_class"},
        {"desired_bank": "per_class", "neighbours": "without_self", "normaliser": "matches"},
        {"search": "exact"},
        {"reliable": "threshold"},
        {"losses": ("re",)},
        {"losses": ("d",)},
        {"losses": ("u",)},
        {"losses": ("d", "u")},
        {"temperature": 0.1, "entropy_scale": 100.0, "k": 1},
    ],
)
def test_every_disagreement_can_be_switched(options: dict) -> None:
    """Each option really acts: the run differs from the reference run, and stays finite."""
    one, reference = adapter("rosita", lr=0.05, **options), adapter("rosita", lr=0.05)
    got, expected = trace(one.stream(images(160))), trace(reference.stream(images(160)))
    assert got != expected
    assert all(math.isfinite(step[2]) for step in got)
    assert any(step[5] for step in got)


def test_prediction_json_is_complete() -> None:
    content = json.loads(adapter("rosita", class_scores=True, features=True).step(images(1)[0]).to_json())
    assert set(content) == {
        "label", "index", "known", "score", "threshold", "mu_desired", "mu_undesired", "verdict", "adapted", "loss",
        "reason", "best", "ms", "class_scores", "pseudo_label", "diagnostics", "features", "evidence",
        "warming_up", "events", "probability", "undecided", "explanation", "class_probabilities", "most_like",
    }  # fmt: skip
    assert list(content["class_scores"]) == list(CLASSES)
    assert len(content["features"]) == 16
    assert "features" not in json.loads(adapter("rosita").step(images(1)[0]).to_json())
    assert set(content["ms"]) == {"encode", "decide", "update"}


@pytest.mark.parametrize(
    ("method", "scaled"), [("rosita", False), *((name, True) for name in ("tda", "dpe", "oga", "onzeta"))]
)
def test_class_probabilities_are_the_softmax_of_the_scaled_cosines_or_of_scaled_logits(
    method: str, scaled: bool
) -> None:
    options = {"score_of": "cosine"} if scaled else {}
    one = adapter(method, "field", score="field", class_scores=True, class_probabilities=True, **options)
    for image in images(5):
        found = one.step(image)
        shares = torch.softmax(class_scores(found) * (1 if scaled else one.backbone.logit_scale), dim=0)
        expected = (found.probability * shares).tolist()
        assert list(found.class_probabilities.values()) == pytest.approx(expected, abs=1e-6)


def test_wrapped_backbone_must_be_given_again(tmp_path) -> None:
    one = adapter("rosita")
    one.save(tmp_path / "a.ostta")
    with raises("backbone-missing", match="passed as an object: pass it again as `backbone=`"):
        ostta.Adapter.restore(tmp_path / "a.ostta")
    other = ostta.backbones.wrap(SmallTower(), torch.randn(10, 16), image_size=32)
    with raises("state-mismatch", match="other weights"):
        ostta.Adapter.restore(tmp_path / "a.ostta", other)


def test_unfamiliar_class_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="unicycle"):
        ostta.load(backbone("embedded"), ["cat", "unicycle"], method="rosita")


def test_restoring_leaves_the_filters_of_warnings_alone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the process's: a thread that restores an adapter must not silence the warnings of another."""
    with pytest.warns(UserWarning, match="not trained on 1 class .axolotl"):
        one = ostta.load("embedded", ["cat", "axolotl"], "zero_shot")
    one.save(tmp_path / "a.ostta")
    made, seen = ostta.Adapter.__init__, []

    def watched(*given, **named) -> None:
        seen.append(list(warnings.filters))
        made(*given, **named)

    monkeypatch.setattr(ostta.Adapter, "__init__", watched)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        again = ostta.restore(tmp_path / "a.ostta")
    assert seen == [before]
    assert said == []  # said once already, when the adapter was made
    assert again.unfamiliar == ["axolotl"]


def test_what_is_not_named_comes_from_the_profile() -> None:
    def parts(**named) -> tuple[str, str, str]:
        one = ostta.load(backbone("wrapped"), CLASSES, **named)
        return one.method_name, one.score_name, one.identifier_name

    assert parts(profile="field", identifier="field") == parts(profile="field") == parts()
    assert parts(profile="field", identifier="lda") == ("zero_shot", "field", "lda")
    assert parts(profile="field", identifier=IDENTIFIERS["lda"]) == ("zero_shot", "field", "lda")
    assert parts(profile="field", method="tda") == ("tda", "field", "field")
    assert parts(profile="field", score="max") == ("zero_shot", "max", "lda")
    # An identifier that can judge one score only brings it along.
    assert parts(profile="field", identifier="msp") == ("zero_shot", "msp", "msp")
    assert parts(profile="reference", identifier="daf") == ("rosita", "max", "daf")
    assert parts(identifier="daf") == ("rosita", "max", "daf")
    with raises("identifier-unknown"):
        parts(profile="field", identifier="ldaa")


def test_no_option_has_two_owners() -> None:
    """Options of method, score, identifier and adapter share one set of names on the command line."""
    of_adapter = {field.name for field in dataclasses.fields(list_options_classes()["adapter"])}
    for one, other in itertools.combinations((METHODS, SCORES, IDENTIFIERS), 2):
        for first, second in itertools.product(one.values(), other.values()):
            owned = [{field.name for field in dataclasses.fields(of.Options)} for of in (first, second)]
            assert not owned[0] & owned[1], (first, second)
            assert not of_adapter & (owned[0] | owned[1]), (first, second)


# --- kinds of errors --------------------------------------------------------------------------------------------------
def test_a_stream_reports_images_that_cannot_be_read_and_raises_everything_else() -> None:
    one = adapter("zero_shot")
    bad = [b"", b"no image", "lost.jpg", None, np.zeros((4, 4)), missing_item("camera", "The camera sent nothing.")]
    found = list(one.stream([*bad, images(1)[0]]))
    assert [p.verdict is None for p in found] == [True] * len(bad) + [False]
    assert found[-2].reason == "The camera sent nothing."
    before = content(one)
    with one.in_use(), pytest.raises(InUseError) as refused:
        list(one.stream(images(2)))
    assert refused.value.code == "in-use"
    assert same(content(one), before)
    # A backbone without an image tower is not the fault of the image.
    features_only = ostta.load(ostta.backbones.wrap(None, torch.eye(10, 16)), CLASSES, "zero_shot")
    with raises("image-tower-missing") as refused:
        list(features_only.stream(images(1)))
    assert not isinstance(refused.value, ImageError)


def test_an_image_that_cannot_be_read_has_an_error_of_its_own_kind(tmp_path) -> None:
    one = adapter("zero_shot", max_megapixels=0.001)
    (tmp_path / "empty.png").touch()
    for bad in (b"no image", "lost.jpg", tmp_path, tmp_path / "empty.png", np.zeros((99, 99, 3), np.uint8), 7):
        with pytest.raises(ImageError) as refused:
            one.step(bad)  # type: ignore[arg-type]
        assert refused.value.code == "image-unreadable"
    assert issubclass(ImageError, Error)
    assert issubclass(InUseError, Error)
    assert Error.code == "error"


# --- the answer after an update ---------------------------------------------------------------------------------------
class Scaled(Entropy):
    """A method from outside that trains, with logits of its own: scaled, and with a bonus for the last class."""

    largest_score = 100.0

    def look(self, state, features, views):
        z = cosines(features, state.overlay.classifier)
        bonus = torch.nn.functional.one_hot(torch.tensor(len(z) - 1), len(z))
        return Look(views, features, z, 100 * z + 1000 * bonus, None)


class Unkept(Scaled):
    """The same with a state of its own."""

    def start(self):
        return SimpleNamespace(inner=super().start(), tensors=dict, memories=dict)

    def overlay(self, state):
        return state.inner.overlay

    def look(self, state, features, views):
        return super().look(state.inner, features, views)

    def propose(self, state, look, decision):
        return super().propose(state.inner, look, decision)

    def commit(self, state, look, decision, trained):
        super().commit(state.inner, look, decision, trained)


class Answering(Unkept):
    """One that says what its logits are after the step."""

    def answer(self, state, look, trained, features):
        return -cosines(features, trained.overlay.classifier)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("answer", ["own", "levelled"])
def test_the_answer_after_an_update_has_the_logits_of_the_method(answer: str, pooled: bool) -> None:
    one = ostta.load(backbone("wrapped"), CLASSES, Scaled, confidence=0.0, class_scores=True, answer=answer)
    pool = ostta.StreamPool(one.backbone)
    if pooled:
        pool.add("a", one)
    for image in images(4):
        one.memory.identifier = FixedVerdict(Verdict.RELIABLE_DESIRED)  # type: ignore[assignment]
        level = (
            0
            if one.memory.levels is None
            else torch.from_numpy(one.memory.levels.strength() * one.memory.levels.level())
        )
        found = pool.step({"a": image})["a"] if pooled else one.step(image)
        assert found.adapted
        assert found.index == len(CLASSES) - 1
        # What the method sees in this image from now on.
        expected = one.pipeline.look_now(one.pipeline.views(image)).logits.detach() - level
        assert list(found.class_scores.values()) == pytest.approx(expected.tolist(), abs=1e-2)


def test_logits_after_an_update_that_nobody_knows_are_those_from_before() -> None:
    for method, last in ((Unkept, True), (Answering, False)):
        one = ostta.load(backbone("wrapped"), CLASSES, method, confidence=0.0)
        found = learned(one, torch.randn(1, 3, 32, 32), Verdict.RELIABLE_DESIRED)
        assert found.adapted
        assert (found.index == len(CLASSES) - 1) is last
