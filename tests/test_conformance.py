"""Methods, scores, identifiers and backbones, alone and together, keep the promises that `ostta.testing` spells out."""

from __future__ import annotations

import pytest

from helpers.cases import (
    BACKBONES,
    CASES,
    CLASSES,
    EARLY,
    MAPLE_METHODS,
    PROMPT_METHODS,
    adapter,
    backbone,
    combinations,
    images,
    same,
    subject,
    usual,
)
from ostta import Error
from ostta.config.registry import ALL_IDENTIFIERS as IDENTIFIERS
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.config.registry import ALL_SCORES as SCORES
from ostta.testing import check_backbone, check_identifier, check_method, check_score, methods

# `test_methods_conform` asks all of a method on the quickest backbone.
REST = [case for case in CASES if case != (case[0], usual(case[0]))]


@pytest.mark.parametrize("promise", [methods.repeatable_and_restorable, methods.leaves_others_alone])
@pytest.mark.parametrize(("method", "kind"), REST)
def test_other_backbones(method: str, kind: str, promise) -> None:
    promise(subject(method, kind=kind))


@pytest.mark.parametrize(("method", "score", "identifier"), combinations())
def test_any_two_go_together(method: str, score: str, identifier: str) -> None:
    """Pure, repeatable, and back after a restart, whatever the method, the score and the identifier."""
    methods.repeatable_and_restorable(subject(method, identifier, usual(method), score))


@pytest.mark.parametrize("promise", [methods.resets, methods.survives_bad_input, methods.works_in_a_pool])
@pytest.mark.parametrize(("method", "score", "identifier"), [case for case in combinations() if case[0] == "rosita"])
def test_each_promise(method: str, score: str, identifier: str, promise) -> None:
    promise(subject(method, identifier, score=score))


@pytest.mark.parametrize("method", METHODS)
def test_methods_conform(method: str) -> None:
    """All promises, as for a method from outside, on the quickest backbone."""
    # A step that tunes a prompt takes as long as dozens of others.
    warm, steps = (10, 24) if method in PROMPT_METHODS else (100, 50)
    options = EARLY.get(method, {})
    check_method(METHODS[method], backbone=backbone(usual(method)), options=options, warm=warm, steps=steps)


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_identifiers_conform(identifier: str) -> None:
    # A fit of the mixture takes milliseconds.
    options = {"window": 32} if identifier == "daf" else {}
    check_identifier(IDENTIFIERS[identifier], options=options, warm=100 if options else 600)


@pytest.mark.parametrize("score", SCORES)
def test_scores_conform(score: str) -> None:
    check_score(SCORES[score], warm=600 if score == "field" else 150, steps=50)


@pytest.mark.parametrize("kind", BACKBONES)
def test_backbones_conform(kind: str) -> None:
    check_backbone(backbone(kind))


@pytest.mark.parametrize("method", PROMPT_METHODS)
def test_a_prompt_without_a_text_tower_is_refused_in_one_sentence(method: str) -> None:
    sentences = {
        True: r"^PromptAlign needs MaPLe prompts in both towers, and wrapped has none: [^.]*\.$",
        False: r"^The backbone wrapped cannot tune prompts, .* of the CLIP family: [^.]*\.$",
    }
    with pytest.raises(Error, match=sentences[method in MAPLE_METHODS]):
        adapter(method, kind="wrapped")


def test_backbones_are_all_covered() -> None:
    assert {kind for _, kind in CASES} == set(BACKBONES)
    assert len(CLASSES) == 10


@pytest.mark.parametrize("method", ["zero_shot", "tda", "oga", "onzeta", "dpe"])
def test_adapted_says_whether_the_image_changed_a_method_without_gradient_steps(method: str) -> None:
    one, adapted = adapter(method), []
    for image in images(80):
        before = one.state.tensors()
        found = one.step(image)
        adapted.append(not same(before, one.state.tensors()))
        assert found.adapted == adapted[-1]
        assert (found.reason is None) == found.adapted
    assert set(adapted) == ({False} if method == "zero_shot" else {False, True})
