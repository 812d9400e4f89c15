"""The tool for choosing options, on a handful of images."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

import ostta
from helpers.paths import ROOT
from ostta.data.by_name import open_dataset
from ostta.field import FieldOptions

HELD_OUT = 30


@pytest.fixture(scope="module")
def choose() -> ModuleType:
    path = ROOT / "tools" / "choose.py"
    if not path.exists():
        pytest.skip("the tools are not part of an installed package")
    found = importlib.util.spec_from_file_location("choose", path)
    module = importlib.util.module_from_spec(found)
    sys.modules["choose"] = module
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Stand-ins for the training sets, as the tools have them: the last images of each half are held out."""
    folder = tmp_path_factory.mktemp("work")
    sample = open_dataset("sample:cifar10", limit=100)
    images = np.stack([np.asarray(sample.image(i)) for i in range(100)])
    np.savez(folder / "train.npz", images=images, labels=sample.labels)
    digits = np.arange(60 * 28 * 28, dtype=np.uint32).astype(np.uint8)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + digits.tobytes()))
    cells = []
    for shade in range(40):
        buffer = io.BytesIO()
        Image.new("RGB", (64, 70), (shade, 90, 3)).save(buffer, "PNG")
        cells.append({"bytes": buffer.getvalue(), "path": ""})
    pyarrow.parquet.write_table(pyarrow.table({"image": cells, "label": [0] * 40}), folder / "photos.parquet")
    places = ["--work", folder, "--mnist", folder, "--caltech", folder / "photos.parquet"]
    return [*map(str, places), "--held-out", str(HELD_OUT), "--images", "12"]


def test_only_held_out_images_are_read(choose: ModuleType, given: list[str]) -> None:
    arguments = choose.parse(given)
    images = choose.HeldOut(arguments.work, arguments.mnist, arguments.caltech, arguments.held_out)
    sample = open_dataset("sample:cifar10", limit=100)
    assert np.array_equal(np.asarray(images.source("cifar10", "clean").image(0)), np.asarray(sample.image(20)))
    assert np.array_equal(np.asarray(images.source("cifar100", "clean").image(29)), np.asarray(sample.image(99)))
    spoiled = images.source("cifar100", "jpeg")
    assert spoiled.name == "cifar100-train-jpeg"
    assert not np.array_equal(np.asarray(spoiled.image(29)), np.asarray(sample.image(99)))
    for name in ("mnist", "caltech"):
        source = images.source(name, "contrast")
        assert len(source) == HELD_OUT
        assert source.name == f"{name}-train"
    assert images.source("mnist", "clean").image(1).size == (28, 28)


def test_a_grid_is_measured_with_the_frozen_row_first(
    choose: ModuleType, given: list[str], tmp_path: Path, capsys
) -> None:
    table = tmp_path / "table.csv"
    rows = choose.main(
        [
            *given,
            "--method",
            "zero_shot,tda",
            "--identifier",
            "lda,daf",
            "--corruptions",
            "clean,jpeg",
            "--unknowns",
            "mnist,caltech",
            "--images",
            "6",
            "--seeds",
            "1,2",
            "--csv",
            str(table),
        ]
    )
    assert [row.name for row in rows] == ["zero_shot", "zero_shot daf", "tda", "tda daf"]
    streams = [f"{corruption}/{unknown}" for corruption in ("clean", "jpeg") for unknown in ("mnist", "caltech")]
    assert all(list(row.figures) == streams for row in rows)
    assert rows[0].differences == []
    assert rows[1].differences == [rows[1].figures[name] - rows[0].figures[name] for name in streams]
    lines = table.read_text(encoding="utf-8").splitlines()
    assert lines[0] == ",".join(["choice", *streams, "mean", "Δ mean", "Δ lowest"])
    assert lines[1].startswith("zero_shot,")
    assert lines[1].endswith("–,–")
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_cached_features_change_no_figure(choose: ModuleType, given: list[str], monkeypatch) -> None:
    asked = [*given, "--method", "tda", "--corruptions", "jpeg", "--unknowns", "mnist", "--metric", "auroc"]
    cached = choose.main(asked)
    monkeypatch.setattr(choose.Features, "step", lambda self, adapter, sample: adapter.step(sample.image))
    assert [row.figures for row in choose.main(asked)] == [row.figures for row in cached]


def test_the_best_value_of_an_option_is_written(choose: ModuleType, given: list[str], tmp_path: Path) -> None:
    out = tmp_path / "defaults.json"
    out.write_text('{"tda": {"shots": 3}}')
    small = ["--corruptions", "clean", "--unknowns", "mnist", "--images", "4"]
    rows = choose.main(
        [*given, *small, "--set", "lr=1e-3,0.1", "--write", "lr", "--write-for", "rosita,unient", "--out", str(out)]
    )
    assert [row.name for row in rows] == ["zero_shot", "rosita lr=1e-3", "rosita lr=0.1"]
    best = 0.001 if rows[1].mean >= rows[2].mean else 0.1
    assert json.loads(out.read_text()) == {"tda": {"shots": 3}, "rosita": {"lr": best}, "unient": {"lr": best}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--corruptions", "snow"], "snow is reported by the suites, and nothing is chosen under it"),
        (["--corruptions", "rain"], "knows no 'rain'"),
        (["--unknowns", "svhn"], "knows no 'svhn'"),
        (["--set", "lr"], "--set takes NAME=A,B"),
        (["--write", "lr"], "--write needs --out"),
    ],
)
def test_what_cannot_be_chosen_is_said(
    choose: ModuleType, given: list[str], arguments: list[str], words: str, capsys
) -> None:
    with pytest.raises(SystemExit):
        choose.parse([*given, *arguments])
    assert words in capsys.readouterr().err


def test_decisions_of_the_tool_are_those_of_an_adapter(choose: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(choose.__file__).parent))
    choose_field = importlib.import_module("choose_field")
    rng = np.random.default_rng(0)
    text = rng.normal(size=(4, 32)).astype(np.float32)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    rows = text[rng.integers(4, size=150)] + 0.25 * rng.normal(size=(150, 32)).astype(np.float32)
    rows[::3] = rng.normal(size=(50, 32))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    odds, classes = choose_field.decide(text, rows, FieldOptions(memory_images=64))
    backbone = ostta.backbones.wrap(None, torch.from_numpy(text), logit_scale=100.0)
    adapter = ostta.load(backbone, ["a", "b", "c", "d"], guard=False, memory_images=64)
    found = [adapter.step_features(torch.from_numpy(row)) for row in rows]
    assert [each.score for each in found] == pytest.approx(odds.tolist(), abs=1e-3)
    assert [each.index for each in found] == classes.tolist()
