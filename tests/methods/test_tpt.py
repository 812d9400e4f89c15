"""Prompt tuning.

The loss by hand, the step against PyTorch's optimiser, and what is forgotten or kept between images.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import ostta
from helpers.cases import CLASSES, adapter, backbone, class_scores, gradients, images, learned, proposed, same
from helpers.errors import raises
from helpers.tiny_models import tiny_siglip
from ostta.core.losses import entropy, most_certain, selected_entropy, unit
from ostta.core.optimisers import EPS, WEIGHT_DECAY, FirstAdamW
from ostta.core.types import Verdict


def tuned(method: str, **options: Any) -> ostta.Adapter:
    return adapter(method, kind="embedded", **options)


def random_views(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


# --- the loss ---------------------------------------------------------------------------------------------------------
def test_selected_entropy_of_two_classes_by_hand() -> None:
    # Probabilities of the first class: 0.9 and 0.2 are the two most certain; their mean is 0.55.
    p = torch.tensor([0.5, 0.9, 0.6, 0.2, 0.45])
    logits = torch.stack([p.log(), (1 - p).log()], dim=1)
    certain = most_certain(logits, share=0.4)
    assert certain.tolist() == [1, 3]
    loss = selected_entropy(logits[certain])
    assert float(loss) == pytest.approx(-0.55 * math.log(0.55) - 0.45 * math.log(0.45), abs=1e-6)


def test_the_most_certain_views_are_six_of_64_and_at_least_one() -> None:
    logits = torch.randn(64, 5, generator=torch.Generator().manual_seed(0)).mul_(3)
    chosen = most_certain(logits, 0.1)
    assert sorted(chosen.tolist()) == sorted(entropy(logits).topk(6, largest=False).indices.tolist())
    few = logits[:3]
    assert float(selected_entropy(few[most_certain(few, 0.1)])) == pytest.approx(float(entropy(few).min()), abs=1e-6)


def test_selected_entropy_of_certain_views_is_finite() -> None:
    logits = torch.tensor([[1e4, 0.0], [1e4, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(selected_entropy(logits), logits)
    assert gradient.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_step_is_that_of_adamw() -> None:
    generator = torch.Generator().manual_seed(1)
    start, gradient = torch.randn(4, 8, generator=generator), torch.randn(4, 8, generator=generator)
    gradient[0] = 0.0
    gradient[1] *= 1e-8
    leaf = start.clone().requires_grad_()
    leaf.grad = gradient.clone()
    torch.optim.AdamW([leaf], lr=5e-3, eps=EPS, weight_decay=WEIGHT_DECAY).step()
    (found,), _ = FirstAdamW(5e-3).step([start], [gradient])
    torch.testing.assert_close(found, leaf.detach(), atol=1e-7, rtol=1e-6)


# --- tpt --------------------------------------------------------------------------------------------------------------
def test_scores_of_tpt_are_the_frozen_ones() -> None:
    frozen, one = tuned("zero_shot"), tuned("tpt")
    adapted = 0
    for image in images(24):
        expected, found = frozen.step(image), one.step(image)
        assert found.score == pytest.approx(expected.score, abs=1e-5)
        assert (found.verdict, found.adapted) == (expected.verdict, expected.known)
        adapted += found.adapted
    assert 0 < adapted < 24
    assert one.state.tensors() == {}


def test_tpt_against_the_equations() -> None:
    """One image, worked out with plain softmax and PyTorch's optimiser, all views at once."""
    one = tuned("tpt", views=40, class_scores=True)
    clip: Any = backbone("embedded")
    views = random_views(40)
    text = clip.prompted(CLASSES)
    context = text.initial_context.clone().requires_grad_()
    features = unit(clip.vision(views))
    classifier = unit(text.encode(context))
    p = torch.softmax(clip.logit_scale * features @ classifier.T, dim=1)
    order = (-(p * p.log()).sum(1)).argsort()[:4]
    mean = p[order].mean(0)
    loss = -(mean * mean.log()).sum()
    loss.backward()
    torch.optim.AdamW([context], lr=5e-3).step()
    with torch.no_grad():
        expected = features[0] @ unit(text.encode(context)).T
    found = one.step_views(views)
    assert found.adapted
    assert found.loss == pytest.approx(float(loss.detach()), abs=1e-5)
    # AdamW's first step is nearly the sign of the gradient, so a component near zero may differ: hence not tighter.
    torch.testing.assert_close(class_scores(found), expected, atol=1e-4, rtol=0)
    before = class_scores(one.predict_views(views))
    assert (before - expected).abs().max() > 1e-3


def test_tpt_forgets_each_image() -> None:
    one = tuned("tpt", class_scores=True)
    answers, losses = [], []
    for seed in (0, 1, 2, 0):
        found = learned(one, random_views(8, seed), Verdict.UNRELIABLE_DESIRED)
        answers.append(found.class_scores)
        losses.append(found.loss)
    assert answers[3] == answers[0] != answers[1]
    assert losses[3] == losses[0] != losses[1]


def test_an_undesired_image_asks_for_no_view() -> None:
    _, proposal = proposed(tuned("tpt"), random_views(1), Verdict.RELIABLE_UNDESIRED)
    assert (proposal.gradient, proposal.reason) == (None, "an undesired image does not tune the prompt")


# --- tpt_c ------------------------------------------------------------------------------------------------------------
def test_tpt_c_moves_by_plain_sgd_and_carries_over(tmp_path: Path) -> None:
    one = tuned("tpt_c")
    clip: Any = backbone("embedded")
    start = clip.prompted(CLASSES).initial_context.clone()
    views = random_views(8)
    loss, (gradient,) = gradients(one, views, Verdict.UNRELIABLE_DESIRED)
    assert one.step_views(views).loss == pytest.approx(float(loss.detach()))
    # Exactly: the whole step is smaller than the usual tolerance.
    assert one.state.overlay.tensors["context"].equal(start - 1e-5 * gradient)
    assert not one.state.overlay.tensors["context"].equal(start)
    for image in images(6):
        one.step(image)
    one.save(tmp_path / "state.ostta")
    restored = ostta.Adapter.restore(tmp_path / "state.ostta")
    assert same(one.state.tensors(), restored.state.tensors())
    assert restored.state.overlay.classifier.equal(one.state.overlay.classifier)
    assert not restored.state.overlay.classifier.equal(one.classifier)
    one.reset()
    assert one.state.overlay.tensors["context"].equal(start)
    assert one.state.overlay.classifier.equal(one.classifier)


def test_tpt_c_lowers_the_loss_of_an_image_that_stays() -> None:
    one = tuned("tpt_c", lr=1e-3)
    views = random_views(8)
    losses = [float(one.step_views(views).loss or math.nan) for _ in range(6)]
    assert losses[-1] < losses[0]


def test_the_paper_tunes_on_reliable_images_only() -> None:
    one = tuned("tpt_c", profile="paper")
    predictions = list(one.stream(images(24)))
    assert {p.adapted for p in predictions} == {True, False}
    assert all(p.adapted == (p.verdict == "reliable_desired") for p in predictions)
    assert tuned("tpt", profile="paper").resolved.method.lr == 5e-4


# --- both -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["tpt", "tpt_c"])
def test_a_view_that_is_not_finite_changes_nothing(method: str) -> None:
    one = tuned(method)
    before = one.state.tensors()
    views = random_views(8)
    views[5] = math.nan
    failed = one.step_views(views)
    assert (failed.adapted, failed.loss, failed.reason) == (False, None, "the loss or its gradient is not finite")
    assert one.steps == 0
    assert same(before, one.state.tensors())


@pytest.mark.parametrize("method", ["tpt", "tpt_c"])
def test_only_the_context_is_trained(method: str) -> None:
    one = tuned(method)
    assert one.step_views(random_views(8)).adapted
    clip: Any = backbone("embedded")
    assert all(weight.grad is None for tower in (clip.text, clip.vision) for weight in tower.parameters())
    assert list(one.method.initial.tensors) == ["context"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["tpt", "tpt_c"])
def test_what_makes_no_sense_is_one_sentence(method: str, tmp_path: Path) -> None:
    with raises("backbone-unsupported", match="cannot tune prompts"):
        ostta.load(ostta.backbones.load(tiny_siglip(tmp_path)), CLASSES, method=method)
    with raises("option-conflict", match="leave out `templates`"):
        tuned(method, templates=("a drawing of a {}.",))
    for wrong, words in (
        ({"share": 0.0}, "`share` must be above 0 and at most 1, not 0"),
        ({"lr": -1.0}, "`lr` must be above 0, "),
    ):
        with raises("option-invalid", match=words):
            tuned(method, **wrong)
    with raises("option-invalid", match="`views` must be from 2 to 1,024, not 1"):
        tuned(method, views=1)
