"""The text tower from context vectors, against the public forward of `transformers` and a plain full-length one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from helpers.errors import raises
from helpers.tiny_models import tiny_clip, tiny_siglip
from ostta.backbones import load, wrap
from ostta.backbones.prompts import PromptedText, prompted

MIXED = ["cat", "great_white_shark", "ox", "dog", "aquarium fish", "Red Panda"]
COMPANIES = {"mixed": MIXED, "single": ["cat"], "forty": [f"thing {'x' * (index % 7)}" for index in range(40)]}
companies = pytest.mark.parametrize("classes", COMPANIES.values(), ids=COMPANIES.keys())


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(tiny_clip(tmp_path_factory.mktemp("clip")))


def public(clip: Any, classes: list[str], template: str = "a photo of a {}.") -> torch.Tensor:
    """The tower's own forward, one prompt at a time: nothing padded, nothing shared."""
    with torch.no_grad():
        return torch.cat([clip.text(torch.tensor([own])) for own in clip.tokens(classes, (template,))])


def full_length(clip: Any, classes: list[str], context: torch.Tensor) -> torch.Tensor:
    """Every prompt in full, padded to the longest, with the context put in after the start."""
    tokens = clip.tokens(classes)
    length, model = max(map(len, tokens)), clip.text.text_model
    padded = torch.tensor([own + own[-1:] * (length - len(own)) for own in tokens])
    embedded = model.embeddings.token_embedding(padded)
    shared = context.expand(len(tokens), -1, -1)
    hidden = torch.cat([embedded[:, :1], shared, embedded[:, 1 + len(context) :]], dim=1)
    hidden = hidden + model.embeddings.position_embedding(torch.arange(length))
    mask = torch.full((length, length), -torch.inf, dtype=context.dtype).triu(1)[None, None]
    for layer in model.encoder.layers:
        hidden = layer(hidden, mask)
    ends = torch.tensor([len(own) - 1 for own in tokens])
    return clip.text.text_projection(model.final_layer_norm(hidden)[torch.arange(len(tokens)), ends])


@companies
def test_the_initial_context_gives_the_public_features(clip: Any, classes: list[str]) -> None:
    text = PromptedText(clip, classes)
    features = text.encode(text.initial_context)
    torch.testing.assert_close(features, public(clip, classes), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(functional.normalize(features, dim=1), clip.classifier(classes), atol=1e-5, rtol=0)


@companies
def test_features_and_gradients_are_those_of_the_full_length(clip: Any, classes: list[str]) -> None:
    # In double precision: gradients are large here, and in single precision rounding alone reaches the bound.
    clip = copy.copy(clip)
    clip.text = copy.deepcopy(clip.text).double()
    text = PromptedText(clip, classes)
    noise = torch.randn(text.initial_context.shape, generator=torch.Generator().manual_seed(2))
    # Away from the words, where the words' own features would not do.
    context = (text.initial_context + 0.1 * noise).requires_grad_()
    weights = torch.randn(len(classes), clip.feature_width, generator=torch.Generator().manual_seed(3))
    found, expected = text.encode(context), full_length(clip, classes, context)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    gradients = [
        torch.autograd.grad((weights * functional.normalize(features, dim=1)).sum(), context)[0]
        for features in (found, expected)
    ]
    assert gradients[1].abs().amax(1).min() > 1e-4
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-5)


def test_gradients_reach_only_the_context(clip: Any) -> None:
    text = PromptedText(clip, MIXED)
    assert not text.encode(text.initial_context).requires_grad
    context = text.initial_context.clone().requires_grad_()
    text.encode(context).square().sum().backward()
    assert context.grad is not None
    assert all(weight.grad is None for tower in (clip.text, clip.vision) for weight in tower.parameters())


def test_other_templates(clip: Any) -> None:
    template = "sketch of {} on paper"
    text = PromptedText(clip, MIXED, template)
    assert len(text.initial_context) == len("sketchof")
    features = text.encode(text.initial_context)
    torch.testing.assert_close(features, public(clip, MIXED, template), atol=1e-5, rtol=1e-5)


def test_the_embedded_model_has_four_words() -> None:
    backbone: Any = load("embedded")
    classes = ["cat", "maple_tree", "aquarium_fish", "truck"]
    text = PromptedText(backbone, classes)
    assert len(text.initial_context) == len(["a", "photo", "of", "a"])
    found = functional.normalize(text.encode(text.initial_context), dim=1)
    torch.testing.assert_close(found, backbone.classifier(classes), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("classes", "template", "code"),
    [
        (["cat"], "{} in a photo", "template-invalid"),
        (["cat"], "a photo of a{}", "template-invalid"),
        (["cat"], "a photo", "template-invalid"),
        (["cat" * 30], "a photo of a {}", "prompt-too-long"),
        ([], "a photo of a {}", "classes-invalid"),
    ],
)
def test_what_cannot_be_tuned_is_said(clip: Any, classes: list[str], template: str, code: str) -> None:
    with raises(code):
        PromptedText(clip, classes, template)


def test_other_families_are_refused_in_one_sentence(tmp_path: Path) -> None:
    tower = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 4, 5))
    for backbone in (load(tiny_siglip(tmp_path)), wrap(tower, torch.eye(2, 5), image_size=4)):
        with raises("backbone-unsupported"):
            prompted(backbone, ["cat", "dog"])
