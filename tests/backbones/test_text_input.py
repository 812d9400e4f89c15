"""Class names and prompt templates as people write them: what is one, what is refused, and in which words."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch

import ostta
from helpers.cases import CLASSES, backbone
from helpers.errors import raises
from helpers.tiny_models import tiny_siglip, tiny_siglip2
from ostta import backbones
from ostta.cli.options import parse_options
from ostta.data.class_names import checked_classes, parse_classes
from ostta.io import parse_json

COMMA = "a photo of a {}, seen from afar."


def load(**options: Any) -> ostta.Adapter:
    return ostta.load(backbone("embedded"), CLASSES, method="zero_shot", **options)


@pytest.mark.parametrize(
    ("given", "templates"),
    [
        (COMMA, (COMMA,)),
        ([COMMA, "a {}."], (COMMA, "a {}.")),
        (f'["{COMMA}", "a {{}}."]', (COMMA, "a {}.")),
        ("[{}]", ("[{}]",)),
        ("[a] photo of a {}.", ("[a] photo of a {}.",)),
    ],
)
def test_a_template_may_have_commas_and_brackets(given: object, templates: tuple[str, ...]) -> None:
    adapter = load(templates=given)
    assert adapter.resolved.adapter.templates == templates
    torch.testing.assert_close(adapter.classifier, backbone("embedded").classifier(CLASSES, templates))


def test_the_command_line_splits_words_and_numbers_but_no_free_text() -> None:
    options = parse_options([f"templates={COMMA}", "losses=re, d"])
    resolved = ostta.load(backbone("embedded"), CLASSES, "rosita", **options).resolved
    assert (resolved.adapter.templates, resolved.method.losses) == ((COMMA,), ("re", "d"))
    for window in ("0.1, 0.9", "[0.1, 0.9]", (0.1, 0.9)):
        tda = ostta.load(backbone("embedded"), CLASSES, method="tda", entropy_window=window).resolved
        assert tda.method.entropy_window == (0.1, 0.9)


@pytest.mark.parametrize("kind", ["embedded", "embedded+maple"])
def test_a_text_alone_is_one_template_for_every_text_tower(kind: str) -> None:
    tower = backbone(kind)
    alone, listed = (tower.classifier(["cat", "dog"], given) for given in (COMMA, [COMMA]))
    torch.testing.assert_close(alone, listed)


@pytest.mark.parametrize(
    ("templates", "words"),
    [
        (5, "must be a list, not 5"),
        (None, "must be a list, not None"),
        ({"a {}": 1}, "must be a list"),
        ([5], "must be text, not 5"),
        ("\ud800 {}", "must be text"),
        (["\ud800 {}"], "must be text"),
        ("[" * 100_000, "exactly once"),
        ("a {} <|endoftext|>, seen from afar.", "<|endoftext|>"),
    ],
)
def test_templates_that_are_none_are_one_sentence(templates: object, words: str) -> None:
    with pytest.raises(ostta.Error) as caught:
        load(templates=templates)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("templates", [5, None, [5], ["\ud800 {}"], ["a {} <|endoftext|>"]])
@pytest.mark.parametrize("kind", ["embedded", "embedded+maple"])
def test_a_backbone_says_so_itself(kind: str, templates: Any) -> None:
    with pytest.raises(ostta.Error):
        backbone(kind).classifier(["cat", "dog"], templates)


@pytest.mark.parametrize("name", ["cat <|endoftext|>", "<|startoftext|>", "<|ENDOFTEXT|> dog"])
def test_a_name_with_a_sign_of_the_tokenizer_is_refused(name: str) -> None:
    with raises("prompt-invalid"):
        ostta.load(backbone("embedded"), ["bird", name], method="rosita")


def test_signs_of_siglip_tokenizers_are_refused(tmp_path: Path) -> None:
    first, second = tiny_siglip(tmp_path / "one"), tiny_siglip2(tmp_path / "two")
    for folder, names in ((first, ["cat</s>"]), (second, ["cat <EOS>", "<pad>", "a<bos>b"])):
        siglip = backbones.load(folder)
        siglip.classifier(["cat", "pad", "s"])
        for name in names:
            with raises("prompt-invalid"):
                siglip.classifier(["bird", name])


def test_a_tokenizer_that_pads_with_a_plain_character_refuses_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = backbone("embedded")
    expected = clip.classifier(["wow!", "dog"])
    monkeypatch.setattr(type(clip.tokenizer), "all_special_tokens", property(lambda _: ["<|endoftext|>", "!"]))
    torch.testing.assert_close(clip.classifier(["wow!", "dog"]), expected)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ([unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")], "are the same"),
        (["CAFÉ", unicodedata.normalize("NFD", "café")], "are the same"),
        (["straße", "STRASSE"], "are the same"),
        (["cat", "\ud800"], "must be valid Unicode"),
        (["cat", "d\udcffg"], "must be valid Unicode"),
        (5, "must be a list"),
        (None, "must be a list"),
    ],
)
def test_class_names_that_cannot_be(classes: Any, words: str) -> None:
    with raises("classes-invalid", match=words) as caught:
        checked_classes(classes)
    str(caught.value).encode()


def test_accents_alone_make_two_names() -> None:
    assert checked_classes(["cafe", "café"]) == ("cafe", "café")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_deep_nesting_is_not_valid_json(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)
    file = tmp_path / "names.json"
    file.write_text(text)
    with raises("classes-invalid"):
        parse_classes(file)


def test_brackets_typed_as_classes_are_one_sentence() -> None:
    with raises("classes-invalid"):
        parse_classes("[" * 100_000)
