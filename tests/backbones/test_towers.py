"""The image tower of a CLIP against the public forward of `transformers`, and what it does not work out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.tiny_models import IMAGE_SIZE, tiny_clip, tiny_embedded, tiny_siglip
from ostta.backbones import load
from ostta.backbones.towers import ClipTower, ImageTower
from ostta.core.losses import unit
from ostta.methods.groups import layernorm_names


@pytest.fixture(scope="module", params=["hub", "embedded"])
def tower(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "hub":
        return load(tiny_clip(folder)).vision
    from ostta.backbones.embedded import load_embedded

    return load_embedded(tiny_embedded(folder)).vision


def pixels(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(1))


def features_and_gradients(tower: torch.nn.Module) -> list[torch.Tensor]:
    """In double precision, so that a difference is not one of rounding."""
    tower = copy.deepcopy(tower).double()
    parameters = [tower.get_parameter(name).requires_grad_() for name in layernorm_names(tower)]
    features = unit(tower(pixels().double()))
    direction = torch.linspace(-1, 1, features.shape[1]).cos().double()
    return [features.detach(), *torch.autograd.grad((features @ direction).square().sum(), parameters)]


def test_features_and_gradients_are_those_of_the_public_forward(tower: Any) -> None:
    assert type(tower) is ClipTower
    public = ImageTower(tower.vision_model, tower.visual_projection)
    mine, theirs = features_and_gradients(tower), features_and_gradients(public)
    assert max(float(gradient.abs().max()) for gradient in theirs[1:]) > 1e-3
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def test_the_last_layer_is_worked_out_for_the_class_token_alone(tower: Any) -> None:
    seen: dict[str, list[int]] = {}
    hooks = [
        part.register_forward_hook(lambda _, __, output, name=name: seen.setdefault(name, []).append(output.shape[1]))
        for name, part in tower.vision_model.encoder.named_modules()
        if isinstance(part, torch.nn.Linear)
    ]
    try:
        tower(pixels())
    finally:
        for hook in hooks:
            hook.remove()
    tokens, last = tower.vision_model.embeddings.num_positions, f"layers.{len(tower.vision_model.encoder.layers) - 1}."
    read = {name: [1 if name.startswith(last) and name.split(".")[-1][0] not in "kv" else tokens] for name in seen}
    assert tokens > 1
    assert seen == read


def test_a_tower_without_class_token_is_left_as_it_is(tmp_path: Path) -> None:
    assert type(load(tiny_siglip(tmp_path)).vision) is ImageTower
