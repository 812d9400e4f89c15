"""Words: names of things that are not classes, as evidence and as names of unknown images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

import ostta
from helpers.cases import backbone
from helpers.errors import raises
from ostta.backbones import wrap
from ostta.field.options import FieldOptions
from ostta.field.score import TEMPERATURE
from ostta.field.side_evidence import SideModel, fit_side
from ostta.field.words import MOST_WORDS, everyday

WIDTH = 16
CLASSES = ("cat", "dog", "ship")
WORDS = ("teapot", "kite", "lamp")
EMBEDDINGS = dict(zip((*CLASSES, *WORDS), np.eye(6, WIDTH, dtype=np.float32), strict=True))


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def stream(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features of images of the six things, and the number of the thing that each image shows."""
    rng = np.random.default_rng(seed)
    things = rng.integers(0, 6, count)
    return unit(np.eye(6, WIDTH)[things] + 0.2 * rng.standard_normal((count, WIDTH))), things


def towerless(**arguments: object) -> ostta.backbones.Backbone:
    return wrap(None, torch.eye(3, WIDTH), **arguments)


def words_alone() -> dict[str, np.ndarray]:
    return {name: EMBEDDINGS[name] for name in WORDS}


# --- where words come from --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("source", ["dictionary", "wrapped dictionary", "wrapped function", "texts"])
def test_a_wrapped_backbone_knows_words_by_a_dictionary_or_a_function(source):
    if source == "dictionary":
        adapter = ostta.load(towerless(), CLASSES, words=words_alone())
    elif source == "wrapped dictionary":
        adapter = ostta.load(towerless(word_features=words_alone()), CLASSES, words=list(WORDS))
    elif source == "wrapped function":
        by_function = towerless(word_features=lambda names: np.stack([EMBEDDINGS[name] for name in names]))
        adapter = ostta.load(by_function, CLASSES, words=list(WORDS))
    else:
        adapter = ostta.load(wrap(None, EMBEDDINGS), CLASSES, words=[*WORDS, "a thing without an embedding"])
    assert adapter.score.words.names == WORDS
    np.testing.assert_array_equal(adapter.score.words.rows, np.eye(6, WIDTH)[3:])


def test_without_embeddings_the_rule_works_without_words_and_says_nothing(recwarn):
    adapter, plain = ostta.load(towerless(), CLASSES, words="everyday"), ostta.load(towerless(), CLASSES)
    assert adapter.score.words is None
    for row in stream(20)[0]:
        answers = [each.step_features(torch.from_numpy(row)) for each in (adapter, plain)]
        assert answers[0].score == answers[1].score
        assert answers[0].most_like is None
        assert "over_words" not in answers[0].evidence
    assert not recwarn.list


def test_a_file_has_one_word_per_line(tmp_path):
    file = tmp_path / "things.txt"
    file.write_text("# things in the kitchen\nteapot\n\n  lamp \nteapot\n")
    for given in (file, str(file)):
        adapter = ostta.load(wrap(None, EMBEDDINGS), CLASSES, words=given)
        # The state describes the words, not the place of the file.
        assert adapter.resolved.score.words == ("teapot", "lamp")


def test_words_that_name_a_class_are_left_out():
    near, apart = unit(np.eye(WIDTH)[0] + 0.37 * np.eye(WIDTH)[5]), unit(np.eye(WIDTH)[0] + 0.42 * np.eye(WIDTH)[5])
    assert near[0] > 0.93 > apart[0]
    adapter = ostta.load(towerless(), CLASSES, words={"kitten": near, "tiger": apart})
    assert adapter.score.words.names == ("tiger",)
    only_classes = ostta.load(towerless(), CLASSES, words={"kitten": near})
    assert only_classes.score.words is None


def test_a_text_tower_encodes_words_with_the_templates_of_the_adapter():
    tower, templates = backbone("embedded"), ["a {} in the snow.", "a drawing of a {}."]
    adapter = ostta.load(tower, ["cat", "dog"], words=["teapot", "bridge"], templates=templates)
    np.testing.assert_array_equal(adapter.score.words.rows, tower.classifier(["teapot", "bridge"], templates).numpy())


def test_the_list_that_ships_is_short_and_has_its_licence():
    from importlib.resources import files

    words = everyday()
    assert 300 < len(words) < 1400
    assert len(set(words)) == len(words)
    assert all(word == word.strip().lower() and len(word) < 20 for word in words)
    assert "CC BY 4.0" in (files("ostta.field.words") / "LICENSES.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (3, "a list of names"),
        ([1, 2], "a list of names"),
        (["teapot", " "], "empty name"),
        ([f"thing {i}" for i in range(MOST_WORDS + 1)], "at most 10,000"),
        (["things.txt"], "is a file, not a word"),
        ("no such file.txt", "There is no word list"),
        ({"teapot": [1.0, 0.0]}, "2 wide, and those of the classes are 16"),
        ({"teapot": np.zeros(WIDTH)}, r"words\['teapot'\] is zero or not finite"),
        ({"teapot": np.eye(WIDTH)}, "words must be embeddings"),
    ],
)
def test_bad_words_are_one_sentence(words, reason):
    with pytest.raises(ostta.Error, match=reason) as problem:
        ostta.load(towerless(), CLASSES, words=words)
    assert "\n" not in str(problem.value)


def test_a_file_of_words_must_be_text(tmp_path):
    (tmp_path / "words.txt").write_bytes(b"\xff\xfe\x00t")
    with raises("file-not-text"):
        ostta.load(towerless(), CLASSES, words=tmp_path / "words.txt")
    with raises("file-not-regular"):
        ostta.load(towerless(), CLASSES, words=tmp_path)


def test_a_score_without_words_refuses_them():
    with raises("option-unknown", match="'words'"):
        ostta.load(towerless(), CLASSES, "tda", words=["teapot"])
    with raises("wrap-invalid"):
        towerless(word_features=torch.eye(WIDTH))


# --- what they tell ---------------------------------------------------------------------------------------------------
def test_word_evidence_is_what_two_normal_densities_add_to_the_fit():
    """With a common covariance, fit and words together are worth the fit alone plus the evidence of the words."""
    rng, count = np.random.default_rng(0), 40_000
    covariance, means = np.array([[1.0, 0.5], [0.5, 0.8]]), (np.array([3.0, 2.5]), np.array([0.0, 0.0]))
    both = np.concatenate([rng.multivariate_normal(mean, covariance, count // 2) for mean in means])
    known = np.repeat([1.0, 0.0], count // 2)
    model = fit_side(both[:, 1], both[:, 0], known, prior=1e-6)
    assert model.slope == pytest.approx(0.5, abs=0.02)
    point = np.array([[1.0, 1.0], [1.5, 0.9], [2.0, 1.6]])
    joint = [multivariate_normal(mean, covariance).logpdf(point) for mean in means]
    fit = [norm(mean[0], 1).logpdf(point[:, 0]) for mean in means]
    expected = (joint[0] - joint[1]) - (fit[0] - fit[1])
    np.testing.assert_allclose(model.evidence(point[:, 1], point[:, 0]), expected, atol=0.06)


def test_words_that_tell_nothing_or_the_opposite_add_nothing():
    rng = np.random.default_rng(1)
    fit, known = rng.normal(size=5000), (rng.random(5000) < 0.5).astype(float)
    noise = fit_side(rng.normal(size=5000) + fit, fit, known, prior=8)
    assert np.abs(noise.evidence(rng.normal(size=100), np.zeros(100))).max() < 0.1
    assert not SideModel(0.0, (-1.0, 1.0), (1.0, 1.0)).evidence(np.linspace(-3, 3, 7), np.zeros(7)).any()


def test_word_evidence_is_constant_beyond_the_means():
    model = SideModel(0.0, (1.0, 0.5), (-1.0, 0.5))
    beyond = model.evidence(np.array([-9.0, -1.0, 1.0, 9.0]), np.zeros(4))
    assert beyond[0] == beyond[1] == -beyond[2] == -beyond[3] == pytest.approx(-8.0)


def test_the_evidence_of_a_prediction_adds_up():
    adapter = ostta.load(towerless(), CLASSES, words=words_alone())
    rows = stream(60)[0]
    for row in rows:
        prediction = adapter.step_features(torch.from_numpy(row))
    evidence, row = prediction.evidence, rows[-1]
    assert evidence["over_words"] == pytest.approx(float(row[:3].max() - row[3:6].max()), abs=1e-6)
    share = evidence["share_known"]
    parts = np.log(share / (1 - share)) / TEMPERATURE + sum(
        evidence[f"from_{part}"] for part in ("text", "neighbours", "distance", "words")
    )
    assert prediction.score == pytest.approx(parts)


# --- the name of what was rejected ------------------------------------------------------------------------------------
def test_an_unknown_image_is_named_by_the_word_that_fits_better_than_every_class():
    adapter = ostta.load(towerless(), CLASSES, words=words_alone())
    rows, things = stream(200)
    named = []
    for row, thing in zip(rows, things, strict=True):
        prediction = adapter.step_features(torch.from_numpy(row))
        best = int(row[:6].argmax())
        expected = None if prediction.known or best < 3 else WORDS[best - 3]
        assert prediction.most_like == expected
        assert prediction.to_dict()["most_like"] == json.loads(prediction.to_json())["most_like"] == expected
        assert ("Most like" in prediction.explanation) == (expected is not None)
        if expected is not None:
            assert prediction.explanation.endswith(f" Most like: {expected}.")
        if thing >= 3:
            named.append(expected == WORDS[thing - 3])
    # The rule needs about a hundred images to see that this stream has unknown ones.
    assert np.mean(named[-40:]) > 0.9


# --- state files ------------------------------------------------------------------------------------------------------
def test_a_restored_state_has_its_words(tmp_path):
    adapter = ostta.load(wrap(None, EMBEDDINGS), CLASSES, words=list(WORDS), memory_images=32)
    rows = torch.from_numpy(stream(75)[0])
    for row in rows[:50]:
        adapter.step_features(row)
    adapter.save(tmp_path / "state.ostta")
    again = ostta.Adapter.restore(tmp_path / "state.ostta", wrap(None, EMBEDDINGS))
    assert again.score.words.names == WORDS
    for row in rows[50:]:
        first, second = adapter.step_features(row), again.step_features(row)
        assert (first.score, first.most_like) == (second.score, second.most_like)


def test_the_embeddings_of_a_dictionary_are_given_again(tmp_path):
    adapter = ostta.load(towerless(), CLASSES, words=words_alone())
    for row in torch.from_numpy(stream(20)[0]):
        adapter.step_features(row)
    adapter.save(tmp_path / "state.ostta")
    with raises("words-missing", match=r"saved with 3 words, and 0 of them .* `words=\{name: embedding\}`"):
        ostta.Adapter.restore(tmp_path / "state.ostta", towerless())
    again = ostta.Adapter.restore(tmp_path / "state.ostta", towerless(), words=words_alone())
    row = torch.from_numpy(stream(1, seed=5)[0][0])
    assert again.predict_features(row).score == adapter.predict_features(row).score


def test_options_check_their_words():
    assert FieldOptions(words=("teapot",)).words == ("teapot",)
    with raises("option-invalid", match="empty name"):
        FieldOptions(words=("",))


def test_a_server_counts_words_among_the_prompts():
    from ostta.server.sessions.build import build_adapter
    from ostta.server.settings import Limits

    wanted = {"classes": list(CLASSES), "options": {"words": [*WORDS, "bell"]}}
    with raises("session-too-large", match="7 prompts .* 6"):
        build_adapter(wanted, wrap(None, EMBEDDINGS), Limits(prompts=6))
    assert build_adapter(wanted, wrap(None, EMBEDDINGS), Limits(prompts=7)).score.words.names == WORDS
