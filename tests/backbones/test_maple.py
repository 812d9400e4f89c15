"""MaPLe's prompts in both towers against hooks on the public forward, its files, and the token statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import ostta
from helpers.cases import CLASSES, backbone, images
from helpers.errors import raises
from helpers.tiny_models import tiny_clip, tiny_siglip
from ostta.backbones import load
from ostta.backbones.maple import (
    OWN_STATISTICS,
    Maple,
    MaplePrompts,
    load_maple,
    measure_statistics,
    new_prompts,
    read_prompts,
    write_prompts,
    write_statistics,
)
from ostta.backbones.protocol import Statistics
from ostta.cli.app import app
from ostta.core.losses import unit
from ostta.data.by_name import open_dataset
from ostta.data.views import canonical

LAYERS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def maple(folder: Path) -> Maple:
    clip: Any = load(folder)
    torch.manual_seed(5)
    prompts = MaplePrompts(32, 48, depth=LAYERS)
    for parameter in prompts.parameters():
        nn.init.normal_(parameter, std=0.3)
    return Maple(clip, prompts, "tiny+maple")


def pixels(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def public_vision(maple: Maple, x: torch.Tensor) -> torch.Tensor:
    """The public forward of `transformers`, with hooks that append the first prompt and put the second in its place."""
    model: Any = maple.tower.vision_model
    visual = maple.tower.prompts.visual()

    def append(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        return torch.cat([output, visual[0].expand(len(output), -1, -1)], 1)

    def put(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden = arguments[0].clone()
        hidden[:, -2:] = visual[1]
        return (hidden, *arguments[1:])

    hooks = [
        model.embeddings.register_forward_hook(append),
        model.encoder.layers[1].register_forward_pre_hook(put),
    ]
    try:
        return maple.tower.visual_projection(model(x).pooler_output)
    finally:
        for hook in hooks:
            hook.remove()


def test_the_image_tower_is_the_public_one_with_prompts_in_it(maple: Maple) -> None:
    with torch.no_grad():
        torch.testing.assert_close(maple.vision(pixels()), public_vision(maple, pixels()), atol=1e-5, rtol=1e-5)
        plain: Any = maple._clip
        assert (maple.vision(pixels()) - plain.vision(pixels())).abs().max() > 1e-2


def public_text(maple: Maple, classes: list[str]) -> torch.Tensor:
    """The public text forward, one full prompt at a time, the vectors put in by hooks."""
    tower: Any = maple.text.text_model
    prompts = maple.tower.prompts.text()

    def embed(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        places = tower.embeddings.position_embedding.weight[1:3]
        changed = output.clone()
        changed[:, 1:3] = prompts[0] + places
        return changed

    def put(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden = arguments[0].clone()
        hidden[:, 1:3] = prompts[1]
        return (hidden, *arguments[1:])

    hooks = [tower.embeddings.register_forward_hook(embed), tower.encoder.layers[1].register_forward_pre_hook(put)]
    try:
        rows = [maple.text(torch.tensor([tokens])) for tokens in maple.tokens(classes)]
        return torch.cat(rows)
    finally:
        for hook in hooks:
            hook.remove()


def test_the_text_tower_is_the_public_one_with_prompts_in_it(maple: Maple) -> None:
    classes = ["cat", "great white shark", "ox"]
    with torch.no_grad():
        expected = public_text(maple, classes)
        torch.testing.assert_close(maple.prompted(classes).classify({}), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(maple.classifier(classes), unit(expected), atol=1e-5, rtol=0)
        two = maple.classifier(classes, ("a photo of a {}.", "a photo of the {}."))
    assert two.shape == expected.shape
    assert not torch.allclose(two, unit(expected), atol=1e-4)


def test_tokens_are_the_inputs_of_the_blocks(maple: Maple) -> None:
    seen: list[torch.Tensor] = []
    model: Any = maple.tower.vision_model
    norms = [layer.layer_norm1 for layer in model.encoder.layers]
    hooks = [norm.register_forward_pre_hook(lambda _, a: seen.append(a[0])) for norm in norms]
    with torch.no_grad():
        features = maple.vision(pixels())
        for hook in hooks:
            hook.remove()
        again, with_tokens = maple.tower.with_tokens(pixels(), LAYERS)
        alone = maple.tower.tokens(pixels(), LAYERS)
    assert again.equal(features)
    for found in (with_tokens, alone):
        assert all(one.equal(other) for one, other in zip(found, seen, strict=True))
    # Class token, 16 patches of the tiny tower, two prompts.
    assert seen[0].shape[1] == model.embeddings.num_positions + 2


class Schedule:
    """A live object, as public checkpoints hold one."""


def public_checkpoint(maple: Maple, file: Path) -> Path:
    own = {f"prompt_learner.{name}": tensor.half() for name, tensor in maple.tower.prompts.state_dict().items()}
    own |= {
        "prompt_learner.token_prefix": torch.zeros(1000, 1, 32),
        "prompt_learner.token_suffix": torch.zeros(1000, 7, 32),
    }
    own |= {"image_encoder.conv1.weight": torch.zeros(2, 2)}
    torch.save({"state_dict": own, "epoch": 2, "scheduler": {"successor": Schedule()}}, file)
    return file


def test_a_public_checkpoint_is_read_whatever_else_is_in_it(maple: Maple, folder: Path, tmp_path: Path) -> None:
    public_checkpoint(maple, tmp_path / "model.pth.tar-2")
    found = load(f"{folder}+maple:{tmp_path}")
    assert found.id == f"{folder.resolve()}+maple:{tmp_path.resolve() / ''}".rstrip("/")
    assert found.statistics is None  # type: ignore[attr-defined]
    for name, tensor in found.tower.prompts.state_dict().items():  # type: ignore[attr-defined]
        torch.testing.assert_close(tensor, maple.tower.prompts.state_dict()[name], atol=1e-3, rtol=1e-3)
    again = load(found.id)
    assert again.weight_hash == found.weight_hash != load(folder).weight_hash


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


def test_a_checkpoint_cannot_run_code(maple: Maple, tmp_path: Path) -> None:
    file, target = tmp_path / "bad.pth", tmp_path / "touched"
    own = {f"prompt_learner.{name}": tensor for name, tensor in maple.tower.prompts.state_dict().items()}
    torch.save({"state_dict": own, "extra": Bomb(target)}, file)
    read_prompts(file)
    assert not target.exists()


def test_files_that_do_not_fit_are_said_in_one_sentence(maple: Maple, folder: Path, tmp_path: Path) -> None:
    clip: Any = load(folder)
    with raises("prompts-not-found"):
        load(f"{folder}+maple:{tmp_path / 'absent'}")
    with raises("prompts-not-found"):
        load(f"{folder}+maple:{tmp_path}")
    (tmp_path / "broken.pth").write_bytes(b"nothing of the kind")
    with raises("checkpoint-unreadable"):
        load_maple(clip, tmp_path / "broken.pth", "x")
    save_file({"ctx": torch.zeros(2, 32)}, tmp_path / "half.safetensors")
    with raises("prompts-unreadable"):
        load_maple(clip, tmp_path / "half.safetensors", "x")
    write_prompts(maple.tower.prompts, tmp_path / "maple.safetensors")
    save_file({"means": torch.zeros(2, 3, 4), "variances": torch.zeros(2, 3, 4)}, tmp_path / OWN_STATISTICS)
    with raises("prompts-mismatch"):
        load(f"{folder}+maple:{tmp_path}")
    with raises("prompts-mismatch"):
        Maple(clip, MaplePrompts(32, 32), "x")
    with raises("template-invalid"):
        new_prompts(clip, "a")
    with raises("template-invalid"):
        maple.classifier(["cat"], ("x {}",))
    siglip = tiny_siglip(tmp_path / "siglip")
    with raises("backbone-unsupported"):
        load(f"{siglip}+maple:{tmp_path}")


def test_statistics_against_all_tokens_at_once(maple: Maple, folder: Path, tmp_path: Path) -> None:
    x = pixels(70)
    found, count = measure_statistics(maple, iter(x))
    with torch.no_grad():
        tokens = torch.stack(maple.tower.tokens(x, LAYERS))
    assert count == 70
    torch.testing.assert_close(found.means, tokens.mean(1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.variances, tokens.var(1, correction=0), atol=1e-5, rtol=1e-4)
    with raises("images-missing"):
        measure_statistics(maple, iter(()))
    write_prompts(maple.tower.prompts, tmp_path / "maple.safetensors")
    write_statistics(found, tmp_path / OWN_STATISTICS, {"images": count})
    stored: Any = load(f"{folder}+maple:{tmp_path}")
    assert stored.statistics.means.equal(found.means)
    # The two published tensors, in place of our own file.
    (tmp_path / OWN_STATISTICS).unlink()
    torch.save(found.means, tmp_path / "ImgNetpre_vis_means.pt")
    torch.save(found.variances, tmp_path / "ImgNetpre_vis_vars.pt")
    published: Any = load(f"{folder}+maple:{tmp_path}")
    assert published.statistics.variances.equal(found.variances)
    assert published.weight_hash == stored.weight_hash != maple.weight_hash


def test_statistics_by_command(maple: Maple, folder: Path, tmp_path: Path) -> None:
    write_prompts(maple.tower.prompts, tmp_path / "maple.safetensors")
    name = f"{folder}+maple:{tmp_path}"
    arguments = ["backbone", "statistics", "--images", "sample:cifar10", "--limit", "5", "--backbone"]
    run = CliRunner().invoke
    assert run(app, [*arguments, name]).exit_code == 0
    stored: Any = load(name)
    clean = open_dataset("sample:cifar10", limit=5)
    views = [canonical(clean.image(number), stored.preprocessing) for number in range(5)]
    assert stored.statistics.means.equal(measure_statistics(stored, views)[0].means)
    assert "has none" in str(run(app, [*arguments, str(folder)]).exception)
    assert "name a file with --out" in str(run(app, [*arguments, "embedded+maple"]).exception)


def test_the_embedded_prompts_ship_with_their_statistics() -> None:
    shipped: Any = backbone("embedded+maple")
    assert shipped.id == "embedded+maple"
    assert isinstance(shipped.statistics, Statistics)
    views = torch.stack([canonical(image, shipped.preprocessing) for image in images(40)[::2]])
    with torch.no_grad():
        tokens = torch.stack(shipped.tower.tokens(views, 1))[0]
    # Snowy images are no source images, but the scale of their tokens is the same.
    ratio = tokens.std() / (shipped.statistics.means[0].var() + shipped.statistics.variances[0].mean()).sqrt()
    assert 0.5 < float(ratio) < 2
    plain: Any = backbone("embedded")
    assert shipped.unfamiliar(["cat", "okapi"]) == ["okapi"]
    assert (shipped.classifier(CLASSES) - plain.classifier(CLASSES)).abs().max() > 1e-3
    one = ostta.load(shipped, CLASSES, method="rosita")
    assert "prompts.ctx" not in one.state.overlay.tensors
