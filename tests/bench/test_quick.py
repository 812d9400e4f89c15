"""The suite paper/quick on random models: the tables hold its outcome against the paper's figures, and it resumes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import CLIPConfig, CLIPModel
from typer.testing import CliRunner

import ostta.bench.suite as suites
from helpers.paths import ROOT
from helpers.tiny_models import tiny_clip
from ostta.bench.paper.values import find
from ostta.bench.suite import expand, load_suite
from ostta.cli.app import app

BACKBONE = 'backbone = "openai/clip-vit-base-patch16"'
STREAM = '"C-10C/MNIST" = { desired = "cifar10c", undesired = "mnist:train" }'
IMAGES = 3


def vit_b16(folder: Path) -> Path:
    """A CLIP whose image tower has the shape of ViT-B/16 and random weights; the text tower stays tiny."""
    tiny_clip(folder)
    config = CLIPConfig.from_pretrained(folder)
    vision = {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 224, "patch_size": 16, "projection_dim": 512,
    }  # fmt: skip
    torch.manual_seed(0)
    text = {**config.text_config.to_dict(), "projection_dim": 512}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=512)).save_pretrained(folder)
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**processor, "crop_size": 224, "size": 224}))
    return folder


def with_samples(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace paper/quick by its first stream, with the model of a folder and the images that ship."""
    text = (suites.FOLDER / "paper" / "quick.toml").read_text(encoding="utf-8")
    assert BACKBONE in text
    assert STREAM in text
    text = text[: text.index("[axes.stream]")].replace(BACKBONE, f'backbone = "{model}"')
    text += '[axes.stream]\n"C-10C/MNIST" = { desired = "sample:cifar10c", undesired = "sample:mnist", '
    text += 'paper = { backbone = "clip-vit-b16", desired = "cifar10c", undesired = "mnist" } }\n'
    (folder / "suites" / "paper").mkdir(parents=True)
    (folder / "suites" / "paper" / "quick.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(suites, "FOLDER", folder / "suites")


def test_it_is_the_papers_model_data_and_methods() -> None:
    cells = expand(load_suite("paper/quick"))
    assert {cell.spec.backbone for cell in cells} == {"openai/clip-vit-base-patch16"}
    assert [cell.spec.desired for cell in cells[:5]] == ["cifar10c"] * 4 + ["imagenetr"]
    assert list(dict.fromkeys(cell.row[0] for cell in cells)) == ["zero_shot", "tda", "rosita", "field"]
    assert {cell.spec.limit for cell in cells} == {None}


def test_the_page_has_the_papers_figures() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    table = page.partition("<!-- quick -->")[2].partition("<!-- end of quick -->")[0]
    cells = expand(load_suite("paper/quick"))
    for method in ("zero_shot", "tda", "rosita"):
        values = [f"{find(**cell.paper, metric='hm')[0].value:.2f}" for cell in cells if cell.row == (method,)]
        assert f"| `{method}` | {' | '.join(values)} |" in table


def test_missing_data_is_told_before_the_first_run_with_how_to_get_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["bench", "run", "paper/quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    assert "ostta data get" in done.output + str(done.exception)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(tiny_clip, id="tiny"),
        # Slow: a forward of ViT-B/16 takes about a third of a second on one core.
        pytest.param(vit_b16, id="ViT-B/16", marks=pytest.mark.slow),
    ],
)
def test_the_table_holds_the_outcome_against_the_paper(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_samples(tmp_path, make(tmp_path / "model"), monkeypatch)
    out = tmp_path / "out"
    common = ["paper/quick", "--limit", str(IMAGES), "--out", str(out)]
    first = CliRunner().invoke(app, ["bench", "run", *common, "--only", "method=zero_shot,tda"])
    assert first.exit_code == 0, first.output
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    assert len(kept) == 2
    # It resumes: what was done is not run again.
    rest = CliRunner().invoke(app, ["bench", "run", *common])
    assert rest.exit_code == 0, rest.output
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(list(out.rglob("*.json"))) == 4
    table = CliRunner().invoke(app, ["bench", "table", *common], env={"COLUMNS": "300"})
    assert table.exit_code == 0, table.output
    cells = {cell.row[0]: cell for cell in expand(load_suite("paper/quick"))}
    for method in ("zero_shot", "rosita"):
        (printed, *_) = find(**cells[method].paper, metric="hm")
        assert f"{printed.value:.2f}" in table.output, table.output
    assert not find(**cells["field"].paper, metric="hm")
