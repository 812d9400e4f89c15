"""PromptAlign: the alignment by hand, the whole step against PyTorch, and what is forgotten or kept between images."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ostta
from helpers.cases import CLASSES, adapter, backbone, class_scores, gradients, images, learned, same
from helpers.errors import raises
from ostta.core.losses import unit
from ostta.core.types import Verdict
from ostta.methods.palign import alignment

ACCEPTED = Verdict.UNRELIABLE_DESIRED


def aligned(method: str, **options: Any) -> ostta.Adapter:
    return adapter(method, kind="embedded+maple", **options)


def random_views(count: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def test_alignment_by_hand() -> None:
    # One token of width one, seen as 1 and 3: mean 2, variance 1. Source: mean 5, variance 0.5.
    tokens = [torch.tensor([[[1.0]], [[3.0]]])]
    found = alignment(tokens, torch.tensor([[[5.0]]]), torch.tensor([[[0.5]]]))
    assert float(found) == pytest.approx(0.5 * 3 + 0.5 * 0.5)
    twice = alignment(tokens * 2, torch.full((3, 1, 1), 5.0), torch.full((3, 1, 1), 0.5))
    assert float(twice) == pytest.approx(2 * float(found))


@pytest.mark.parametrize(
    ("options", "blocks", "chosen"), [({}, 3, 4), ({"blocks": "reference"}, 2, 4), ({"over": "all"}, 3, 40)]
)
def test_one_step_against_the_equations(options: dict[str, str], blocks: int, chosen: int) -> None:
    """One image, worked out with plain softmax, the tower's own parameters and PyTorch's optimiser."""
    one = aligned("palign", views=40, class_scores=True, **options)
    maple: Any = ostta.backbones.load("embedded+maple")
    views = random_views(40)
    prompts = maple.tower.prompts
    parameters = [parameter.requires_grad_() for parameter in prompts.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=4e-2)
    text = maple.prompted(CLASSES)
    features = unit(maple.vision(views))
    p = torch.softmax(maple.logit_scale * features @ unit(text.classify({})).T, dim=1)
    order = (-(p * p.log()).sum(1)).argsort()[:4]
    mean = p[order].mean(0)
    loss = -(mean * mean.log()).sum()
    tokens = maple.tower.with_tokens(views if chosen == 40 else views[order], 3)[1]
    for number in range(blocks):
        off_mean = (tokens[number].mean(0) - maple.statistics.means[number]).abs().mean()
        off_variance = (tokens[number].var(0, correction=0) - maple.statistics.variances[number]).abs().mean()
        loss = loss + 100 / 3 * (off_mean + off_variance) / 2
    loss.backward()
    optimiser.step()
    with torch.no_grad():
        expected = unit(maple.vision(views[:1]))[0] @ unit(text.classify({})).T
    found = one.step_views(views)
    assert found.adapted
    assert found.loss == pytest.approx(float(loss.detach()), rel=1e-4)
    # AdamW's first step is nearly the sign of the gradient, and components near zero may differ: hence not tighter.
    torch.testing.assert_close(class_scores(found), expected, atol=5e-3, rtol=0)
    before = class_scores(one.predict_views(views))
    assert (before - expected).abs().max() > 2e-2


def test_scores_of_palign_are_the_frozen_ones() -> None:
    frozen, one = aligned("zero_shot"), aligned("palign")
    for image in images(16):
        expected, found = frozen.step(image), one.step(image)
        assert found.score == pytest.approx(expected.score, abs=1e-5)
        assert (found.verdict, found.adapted) == (expected.verdict, expected.known)
    assert one.state.tensors() == {}


@pytest.mark.parametrize("method", ["tpt", "palign"])
def test_prompts_and_optimiser_return_to_their_start(method: str) -> None:
    one = aligned(method, class_scores=True)
    answers = [learned(one, random_views(seed=seed), ACCEPTED).class_scores for seed in (0, 1, 0)]
    assert answers[2] == answers[0] != answers[1]


def test_palign_c_moves_by_sgd_with_momentum_and_carries_over() -> None:
    one = aligned("palign_c", lr=1e-3)
    start = one.state.overlay.stored()
    velocity = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    expected = {name: tensor.clone() for name, tensor in start.items()}
    for seed in (0, 1, 2):
        views = random_views(seed=seed)
        for name, gradient in zip(expected, gradients(one, views, ACCEPTED)[1], strict=True):
            velocity[name] = 0.9 * velocity[name] + gradient
            expected[name] -= 1e-3 * velocity[name]
        assert learned(one, views, ACCEPTED).adapted
    for name, tensor in one.state.overlay.stored().items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-6, rtol=1e-5)
    assert not same(start, one.state.overlay.stored())


@pytest.mark.parametrize("method", ["tpt", "tpt_c", "palign", "palign_c"])
def test_gradients_reach_the_prompts_of_both_towers_and_nothing_else(method: str) -> None:
    one = aligned(method)
    overlay = one.state.overlay if method.endswith("_c") else one.method.initial  # type: ignore[attr-defined]
    assert all(name.startswith("prompts.") for name in overlay.tensors)
    assert all(float(gradient.abs().max()) > 0 for gradient in gradients(one, random_views(), ACCEPTED)[1])
    maple: Any = backbone("embedded+maple")
    assert all(weight.grad is None for tower in (maple.text, maple.vision) for weight in tower.parameters())


def test_the_paper_profile() -> None:
    tuned, continual = (
        aligned("palign", profile="paper").resolved.method,
        aligned("palign_c", profile="paper").resolved.method,
    )
    assert (tuned.maple_lr, tuned.over) == (5e-4, "all")
    assert (continual.momentum, continual.update, continual.over) == (0.0, "reliable", "all")


def test_statistics_must_be_there() -> None:
    maple: Any = ostta.backbones.load("embedded+maple")
    maple.statistics = None
    with raises(
        "statistics-missing", match=r"There are no token statistics for embedded\+maple: .*`ostta backbone statistics"
    ):
        ostta.load(maple, CLASSES, method="palign")
