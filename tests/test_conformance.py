"""Every method with every identifier on every kind of backbone keeps the same promises, which `ostta.testing` spells out."""

from __future__ import annotations

import pytest

from cases import BACKBONES, CASES, CLASSES, EARLY, MAPLE_METHODS, PROMPT_METHODS, adapter, backbone, subject, usual
from ostta import Error
from ostta.identifiers import IDENTIFIERS
from ostta.methods import METHODS
from ostta.testing import check_backbone, check_identifier, check_method, methods

# `test_methods_conform` asks all of a method with `lda` on the quickest backbone.
REST = [case for case in CASES if case != (case[0], "lda", usual(case[0]))]
each_case = pytest.mark.parametrize(("method", "identifier", "kind"), REST)
# What an identifier cannot change about a method is asked of every method with one of them, and of every identifier with one method.
PAIRS = [case for case in REST if case[1] == "lda" or case[::2] == ("rosita", "wrapped")]
each_pair = pytest.mark.parametrize(("method", "identifier", "kind"), PAIRS)


@each_case
def test_a_stream_is_pure_repeatable_and_survives_a_restart(method: str, identifier: str, kind: str) -> None:
    methods.repeatable_and_restorable(subject(method, identifier, kind))


@pytest.mark.parametrize(
    "promise", [methods.resets, methods.leaves_others_alone, methods.survives_bad_input, methods.takes_any_image]
)
@each_pair
def test_each_promise(method: str, identifier: str, kind: str, promise) -> None:
    promise(subject(method, identifier, kind))


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


@pytest.mark.parametrize("kind", BACKBONES)
def test_backbones_conform(kind: str) -> None:
    check_backbone(backbone(kind))


@pytest.mark.parametrize("method", PROMPT_METHODS)
def test_a_prompt_without_a_text_tower_is_refused_in_one_sentence(method: str) -> None:
    sentences = {
        True: r"^PromptAlign needs MaPLe prompts in both towers, and wrapped has none: [^.]*\.$",
        False: r"^The backbone wrapped cannot tune prompts: .* of the CLIP family[^.]*\.$",
    }
    with pytest.raises(Error, match=sentences[method in MAPLE_METHODS]):
        adapter(method, kind="wrapped")


def test_backbones_are_all_covered() -> None:
    assert {kind for _, _, kind in CASES} == set(BACKBONES)
    assert len(CLASSES) == 10
