"""The group `norm`: towers whose normalisations are not LayerNorms, alone and in a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn

import ostta
from helpers.cases import CLASSES, SmallTower, adapter, backbone, images, learned, same, trace
from ostta import Error, Verdict
from ostta.backbones import wrap
from ostta.live import StreamPool
from ostta.methods.groups import GROUPS, Group, layernorm_names, norm_kinds, norm_names

WIDTH = 16


class SmallResNet(nn.Module):
    """What CLIP's ResNets have in small: convolutions and batch norms, and no LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTH, 4, 4, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return (x + self.block(x)).mean((2, 3))


class EveryNorm(nn.Module):
    """One of each kind, with parameters and without."""

    def __init__(self) -> None:
        super().__init__()
        self.images = nn.Sequential(
            nn.Conv2d(3, WIDTH, 4, 4),
            nn.GroupNorm(4, WIDTH),
            nn.InstanceNorm2d(WIDTH, affine=True),
            nn.SyncBatchNorm(WIDTH),
        )
        self.bare = nn.Sequential(
            nn.InstanceNorm2d(WIDTH), nn.BatchNorm2d(WIDTH, affine=False), nn.GroupNorm(4, WIDTH, affine=False)
        )
        self.rows = nn.Sequential(
            nn.LayerNorm(WIDTH, bias=False), nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH, elementwise_affine=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(self.bare(self.images(x)).relu().mean((2, 3)))


def wrapped(tower: nn.Module) -> Any:
    torch.manual_seed(0)
    for part in tower.modules():
        if isinstance(part, nn.BatchNorm2d):
            # A tower that was trained: its running statistics are not those of fresh ones.
            part.running_mean = 0.1 * torch.randn(part.num_features)
            part.running_var = 0.5 + torch.rand(part.num_features)
    return wrap(tower, torch.randn(len(CLASSES), WIDTH), image_size=32)


def test_all_affine_normalisations_are_found_and_no_others() -> None:
    tower = EveryNorm()
    assert norm_names(tower) == [
        *(f"images.{number}.{name}" for number in (1, 2, 3) for name in ("weight", "bias")),
        "rows.0.weight",
        "rows.1.weight",
    ]
    assert layernorm_names(tower) == ["rows.0.weight"]
    assert norm_kinds(tower) == ["GroupNorm", "InstanceNorm2d", "LayerNorm", "RMSNorm", "SyncBatchNorm"]


def test_on_a_tower_of_layernorms_it_is_the_same_group() -> None:
    vision = backbone("embedded").vision
    assert norm_names(vision) == layernorm_names(vision)
    runs = [
        trace(adapter("rosita", kind="embedded", group=group).stream(images(16))) for group in ("norm", "layernorm")
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("method", ["rosita", "unient", "prototypes", "entropy"])
def test_batch_norms_learn_and_their_statistics_stay(method: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"entropy": {"confidence": 0.0}, "prototypes": {"wait": 0}}.get(method, {})
    model = wrapped(SmallResNet())
    before = {name: value.clone() for name, value in model.vision.state_dict().items()}
    one = ostta.load(model, CLASSES, method=method, group="norm", lr=0.05, **options)
    assert list(one.state.overlay.tensors) == [
        f"{place}.{name}" for place in ("stem.1", "block.1") for name in ("weight", "bias")
    ]
    fresh = one.state.overlay.stored()
    for seed, verdict in enumerate([Verdict.RELIABLE_UNDESIRED] * 7 + [Verdict.RELIABLE_DESIRED] * 8):
        views = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        outcome = learned(one, views, verdict)
    assert outcome.adapted
    moved = one.state.overlay.stored()
    assert all(torch.isfinite(moved[name]).all() and not moved[name].equal(fresh[name]) for name in fresh)
    # Also the running means and variances, and how many batches they saw.
    assert same(before, model.vision.state_dict())
    assert not any(part.training for part in model.vision.modules())
    one = ostta.load(model, CLASSES, method=method, group="norm", **options)
    list(one.stream(images(12)))
    one.save(tmp_path / "state.ostta")
    again = ostta.Adapter.restore(tmp_path / "state.ostta", model)
    assert trace(again.stream(images(24)[12:])) == trace(one.stream(images(24)[12:]))


def test_the_error_of_layernorm_names_the_group_that_fits() -> None:
    model = wrapped(SmallResNet())
    for group in ("layernorm", None):
        with pytest.raises(
            Error, match=r'^The image tower has no LayerNorm, but BatchNorm2d: train these with the group "norm"\.$'
        ):
            ostta.load(model, CLASSES, "rosita", **({} if group is None else {"group": group}))
    bare = wrapped(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, WIDTH)))
    for group in ("layernorm", "norm"):
        with pytest.raises(
            Error, match=rf'^The image tower has no normalisation with parameters for the group "{group}": [^.]*\.$'
        ):
            ostta.load(bare, CLASSES, group=group, method="rosita")


@pytest.mark.parametrize("tower", [SmallResNet, EveryNorm, SmallTower])
def test_a_pool_is_as_good_as_as_many_adapters(tower: type[nn.Module]) -> None:
    """Of these towers only the last has nothing but LayerNorms, whose values can be given for each image of a batch."""
    model = wrapped(tower())
    pool = StreamPool(model)
    alone = {}
    for seed, (name, method) in enumerate([("a", "rosita"), ("b", "rosita"), ("c", "unient"), ("d", "zero_shot")]):
        options = {} if method == "zero_shot" else {"group": "norm", "lr": 0.01}
        pool.add(name, CLASSES, method=method, seed=seed, **options)
        alone[name] = ostta.load(model, CLASSES, method=method, seed=seed, **options)
    shares = {name: stream.shares for name, stream in pool._streams.items()}
    assert shares == {"a": tower is SmallTower, "b": tower is SmallTower, "c": tower is SmallTower, "d": True}
    found: dict[str, list[ostta.Prediction]] = {name: [] for name in alone}
    for image in images(30):
        for name, answer in pool.step(dict.fromkeys(alone, image)).items():
            found[name].append(answer)
    for name, one in alone.items():
        expected = list(one.stream(images(30)))
        assert [(p.index, p.verdict, p.adapted) for p in found[name]] == [
            (p.index, p.verdict, p.adapted) for p in expected
        ]
        assert [p.score for p in found[name]] == pytest.approx([p.score for p in expected], abs=1e-4)
    assert any(answer.adapted for answer in found["a"])


def test_every_group_has_a_line_about_it() -> None:
    assert tuple(GROUPS) == get_args(Group)
