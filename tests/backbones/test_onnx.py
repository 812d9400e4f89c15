"""Backbones for ONNX Runtime.

Equal to those they were made from, whole or not there at all, and damage is one sentence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import ostta
from helpers.cases import CLASSES, SmallTower, adapter, backbone, images
from helpers.errors import raises
from helpers.tiny_models import tiny_clip, tiny_siglip
from ostta import Adapter, Error, backbones
from ostta.backbones.maple import Maple, MaplePrompts
from ostta.backbones.onnx import DESCRIPTION, FILES, MODEL, TEXT, file_hash
from ostta.backbones.onnx import seal as sealed
from ostta.backbones.wrapped import Wrapped
from ostta.cli.app import app
from ostta.core.overlay import encode
from ostta.live import StreamPool

pytest.importorskip("onnxruntime", reason='needs `pip install "ostta[onnx]"`')
onnx = pytest.importorskip("onnx", reason='needs `pip install "ostta[onnx]"`')
pytest.importorskip("onnxscript", reason='needs `pip install "ostta[onnx]"`')

SAME = 1e-4
FROZEN = ("zero_shot", "tda", "dpe", "oga", "onzeta")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture(scope="module")
def exported(place: Path) -> str:
    """The embedded model, which several tests read and none changes."""
    backbones.export(backbone("embedded"), CLASSES, place / "embedded")
    return f"onnx:{place / 'embedded'}"


@pytest.fixture(scope="module")
def small(place: Path) -> Path:
    """A small wrapped tower."""
    backbones.export(backbone("wrapped"), CLASSES, place / "small")
    return place / "small"


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    """The small one, to be damaged."""
    return Path(shutil.copytree(small, tmp_path / "copy"))


@pytest.fixture
def ready(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of the small tower in place of any other, which saves the time of making one."""
    model = (small / MODEL).read_bytes()
    monkeypatch.setattr("ostta.backbones.onnx_export._program", lambda _: None)
    monkeypatch.setattr("ostta.backbones.onnx_export._write_model", lambda _, file, __: file.write_bytes(model))


def pixels(model: Any, count: int = 5) -> torch.Tensor:
    size = model.preprocessing.image_size
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def described(folder: Path, seal: bool = True, **changes: Any) -> None:
    """Change the description on purpose, with a hash that is right again."""
    content = {**json.loads((folder / DESCRIPTION).read_text()), **changes}
    if seal:
        del content["sha256"]
        content["sha256"] = sealed(content)
    (folder / DESCRIPTION).write_text(json.dumps(content))


def rehashed(folder: Path) -> None:
    """Write the hashes of the files as they are now."""
    described(folder, files={name: file_hash((folder / name).read_bytes()) for name in FILES})


# --- equal to what was exported ---------------------------------------------------------------------------------------
def make_maple(folder: Path) -> Maple:
    clip = backbones.load(tiny_clip(folder))
    torch.manual_seed(0)
    prompts = MaplePrompts(32, 48, depth=2)
    for parameter in prompts.parameters():
        nn.init.normal_(parameter)
    return Maple(clip, prompts, "tiny+maple")  # type: ignore[arg-type]


def by_command(folder: Path, to: Path, templates: list[str]) -> None:
    arguments = ["backbone", "export", "--backbone", str(folder), "--classes", "cat,dog,ship", "--to", str(to)]
    done = CliRunner().invoke(app, [*arguments, *(word for template in templates for word in ("--template", template))])
    assert done.exit_code == 0, done.output
    assert f"{folder} in float32 with 3 classes: onnx:{to}\n" in done.stdout
    assert "The largest difference between its unit features and those in torch is " in done.stdout
    # Asked before any work: what is there is kept unless the person says otherwise.
    assert "replace it with `force`" in str(CliRunner().invoke(app, arguments).exception)
    assert str(Path(ostta.__file__).parent).encode() not in (to / MODEL).read_bytes()


@pytest.mark.parametrize("kind", ["clip", "siglip", "maple"])
def test_features_and_classifier_are_those_of_the_original(kind: str, tmp_path: Path) -> None:
    make: dict[str, Callable[[Path], Any]] = {
        "clip": lambda folder: backbones.load(tiny_clip(folder)),
        "siglip": lambda folder: backbones.load(tiny_siglip(folder)),
        "maple": make_maple,
    }
    original, templates = make[kind](tmp_path / "model"), ["a photo of {}.", "one small {}"]
    if kind == "clip":
        by_command(tmp_path / "model", tmp_path / "out", templates)
    else:
        backbones.export(original, ["cat", "dog", "ship"], tmp_path / "out", templates=templates)
    made: Any = backbones.load(f"onnx:{tmp_path / 'out'}")
    for count in (1, 6):
        views = pixels(original, count)
        assert torch.allclose(encode(made.vision, views), encode(original.vision, views), atol=SAME)
    expected = original.classifier(["ship", "cat"], templates)
    assert torch.allclose(made.classifier(["ship", "cat"], templates), expected, atol=1e-6)
    assert (made.about.backbone, made.about.weight_hash) == (original.id, original.weight_hash)
    assert made.about.largest_difference < SAME
    assert made.preprocessing == original.preprocessing
    assert made.logit_scale == original.logit_scale
    assert made.feature_width == original.feature_width
    assert made.defaults == {**original.defaults, "adapter": {"templates": templates}}
    # Templates of its own are what an adapter takes; others are not to be had.
    assert ostta.load(made, ["dog"], method="zero_shot").resolved.adapter.templates == tuple(templates)
    with raises("templates-not-stored"):
        ostta.load(made, ["dog"], method="zero_shot", templates=["one {}"])


@pytest.mark.parametrize("method", FROZEN)
def test_a_stream_is_decided_alike(method: str, exported: str) -> None:
    ours, theirs = adapter(method, kind="embedded"), ostta.load(exported, CLASSES, method=method)
    for image in images(40):
        expected, found = ours.step(image), theirs.step(image)
        assert (found.label, found.index, found.verdict) == (expected.label, expected.index, expected.verdict)
        assert found.adapted == expected.adapted
        assert found.score == pytest.approx(expected.score, abs=SAME)


def test_methods_that_train_are_refused_in_one_sentence(exported: str) -> None:
    model = backbones.load(exported)
    for method in ("rosita", "tpt"):
        with raises(
            "backbone-unsupported", match=r"^Nothing can be trained on the backbone onnx:.*zero_shot, tda or dpe\.$"
        ):
            ostta.load(model, CLASSES, method=method)


def test_a_pool_decides_as_adapters_do(exported: str) -> None:
    model = backbones.load(exported)
    pool, alone = StreamPool(model), {}
    for number, method in enumerate(FROZEN):
        pool.add(method, CLASSES, method=method, seed=number)
        alone[method] = ostta.load(model, CLASSES, method=method, seed=number)
    for image in images(8):
        answers = pool.step(dict.fromkeys(FROZEN, image))
        for method, answer in answers.items():
            expected = alone[method].step(image)
            assert (answer.label, answer.verdict) == (expected.label, expected.verdict)
            assert answer.score == pytest.approx(expected.score, abs=1e-6)


def test_a_state_goes_on_where_every_number_is_the_same(exported: str, tmp_path: Path) -> None:
    one, file = ostta.load(exported, CLASSES, method="tda"), tmp_path / "state.ostta"
    for image in images(10):
        one.step(image)
    one.save(file)
    again = Adapter.restore(file, exported)
    assert again.backbone.id == one.backbone.id == exported
    for image in images(14)[10:]:
        expected, found = one.step(image), again.step(image)
        assert (found.score, found.label, found.threshold) == (expected.score, expected.label, expected.threshold)
    # A file never names what is read, and a backbone in torch is another one.
    with raises("backbone-missing"):
        Adapter.restore(file)
    with raises("state-mismatch", match="belongs to a model with other weights"):
        Adapter.restore(file, "embedded")


def test_threads_are_those_of_torch(small: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        tower: Any = backbones.load(f"onnx:{small}").vision
    finally:
        torch.set_num_threads(before)
    assert tower._session.get_session_options().intra_op_num_threads == 2


# --- classes ----------------------------------------------------------------------------------------------------------
def test_any_of_the_stored_classes_in_any_order(exported: str) -> None:
    model, original = backbones.load(exported), backbone("embedded")
    chosen = ["truck", "cat", "airplane"]
    assert torch.allclose(model.classifier(chosen), original.classifier(chosen), atol=1e-6)
    with raises("class-not-stored"):
        model.classifier(["cat", "zebra"])


@pytest.mark.usefixtures("ready")
def test_what_a_model_does_not_understand_is_still_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrapped, "unfamiliar", lambda self, classes: ["cat", "frog"])
    monkeypatch.setattr(Wrapped, "remark", "Look twice.")
    backbones.export(backbone("wrapped"), CLASSES, tmp_path / "out")
    model = backbones.load(f"onnx:{tmp_path / 'out'}")
    assert model.remark == "Look twice."
    with pytest.warns(UserWarning, match="was not trained on 1 class \\(frog\\)"):
        ostta.load(model, ["dog", "frog"], method="zero_shot")


# --- eight bits -------------------------------------------------------------------------------------------------------
def test_eight_bits_see_an_image_alike_alone_and_in_a_batch(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = SimpleNamespace(model_proto=onnx.load(small / MODEL))  # as it was made once already
    monkeypatch.setattr("ostta.backbones.onnx_export._program", lambda _: program)
    original = backbone("wrapped")
    about = backbones.export(original, CLASSES, tmp_path / "out", int8=True)
    model: Any = backbones.load(f"onnx:{tmp_path / 'out'}")
    assert model.about.precision == "int8"
    assert 0 < about.largest_difference < 0.01
    views = pixels(original) * torch.tensor([1.0, 5.0, 0.1, 2.0, 1.0])[:, None, None, None]
    together, alone = model.vision(views), torch.cat([model.vision(view[None]) for view in views])
    assert torch.equal(together, alone)
    StreamPool(model).add("one", CLASSES, method="tda")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([DESCRIPTION, *FILES])


# --- exporting --------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("ready")
def test_an_exported_backbone_is_replaced_by_force(copied: Path) -> None:
    described(copied, logit_scale=1.0)
    (copied.parent / f".{copied.name}.0123456789abcdef.partial").mkdir()  # of a process that was killed, long ago
    os.utime(copied.parent / f".{copied.name}.0123456789abcdef.partial", (0, 0))
    backbones.export(backbone("wrapped"), CLASSES, copied, force=True)
    assert backbones.load(f"onnx:{copied}").logit_scale == 100.0
    assert [path.name for path in copied.parent.iterdir()] == [copied.name]


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("failure", [Error("broken"), KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("before", [False, True])
def test_a_failed_export_leaves_what_was_there(
    failure: BaseException, before: bool, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "deep" / "out"
    if before:
        shutil.copytree(small, target)

    def fail(*_: Any, **__: Any) -> Any:
        raise failure

    monkeypatch.setattr("ostta.backbones.onnx_export._write_text", fail)
    with pytest.raises((Error, KeyboardInterrupt)):
        backbones.export(backbone("wrapped"), CLASSES, target, force=True)
    assert [path.name for path in target.parent.iterdir()] == (["out"] if before else [])
    if before:
        assert {path.name: path.read_bytes() for path in target.iterdir()} == {
            path.name: path.read_bytes() for path in small.iterdir()
        }


def test_only_an_exported_backbone_is_ever_replaced(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostta.backbones.onnx_export._program", lambda _: pytest.fail("it was asked after the work"))
    with raises("folder-in-use"):
        backbones.export(backbone("wrapped"), CLASSES, copied)
    (copied / "notes.txt").write_text("mine")
    with raises("folder-in-use"):
        backbones.export(backbone("wrapped"), CLASSES, copied, force=True)
    with raises("folder-in-use"):
        backbones.export(backbone("wrapped"), CLASSES, copied / "notes.txt", force=True)
    assert (copied / "notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("ready")
def test_features_that_differ_are_not_exported(tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = backbones.wrap(SmallTower(), torch.randn(2, 16), image_size=32)
    with raises("backbone-not-exportable"):
        backbones.export(other, ["cat", "dog"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


class FixedBatch(nn.Module):
    """A tower that has the size of the batch as a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * 8 * 8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x.flatten(1)) + torch.zeros(len(x), 4)


def test_what_cannot_be_exported_is_one_sentence(small: Path, tmp_path: Path) -> None:
    without = backbones.wrap(None, torch.randn(2, 4))
    with raises("backbone-not-exportable"):
        backbones.export(without, ["cat", "dog"], tmp_path / "out")
    with raises("backbone-not-exportable"):
        backbones.export(backbones.load(f"onnx:{small}"), ["cat"], tmp_path / "out")
    with raises("backbone-not-exportable") as found:
        backbones.export(
            backbones.wrap(FixedBatch(), torch.randn(2, 4), image_size=8), ["cat", "dog"], tmp_path / "out"
        )
    assert "\n" not in str(found.value)
    for classes in (["cat", "cat"], [], "cat"):
        with raises("classes-invalid"):
            backbones.export(backbone("wrapped"), classes, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_tower_beyond_two_gigabytes_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostta.backbones.onnx_export.MAX_BYTES", 1000)
    with raises("backbone-not-exportable"):
        backbones.export(backbone("wrapped"), CLASSES, tmp_path / "out")


@pytest.mark.parametrize("library", ["onnxruntime", "onnxscript"])
def test_without_the_extra_it_is_named(
    library: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with raises("library-missing") as found:
        backbones.export(backbone("wrapped"), CLASSES, tmp_path / "out")
    assert library in str(found.value)
    if library == "onnxruntime":
        with raises("library-missing"):
            backbones.load(f"onnx:{small}")


# --- damage -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [DESCRIPTION, *FILES])
@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "gone"])
def test_damage_to_any_file_is_one_sentence(name: str, how: str, copied: Path) -> None:
    file = copied / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes({"flipped": bytes(content), "cut": bytes(content[: len(content) // 2]), "empty": b""}[how])
    with pytest.raises(Error) as found:
        backbones.load(f"onnx:{copied}")
    assert "\n" not in str(found.value)
    assert str(copied) in str(found.value)


BAD: dict[str, list[Any]] = {
    "format": [0, 2, "1", True, None],
    "backbone": [3, None, "\ud800"],
    "weight_hash": ["x", 5, "A" * 64],
    "precision": ["int4", 8],
    "logit_scale": [0, -1.0, "100", True, float("nan"), 1e300],
    "classes": [[], "cat", ["cat", 3], ["cat"] * 10, [" "], {}],
    "templates": ["a {}", ["no braces"], [3]],
    "defaults": [[], {"lda": 3}, {"lda": {"search": {}}}, {"lda": {"x": [float("inf")]}}],
    "remark": [None],
    "unfamiliar": [3, ["cat", "cat"]],
    "largest_difference": [-1, "0"],
    "versions": [[], {"torch": 2}],
    "files": [{}, {MODEL: "0" * 64}, {MODEL: "0" * 64, TEXT: "0" * 64, "../x": "0" * 64}, {MODEL: 1, TEXT: 2}],
    "preprocessing": [{}, 3],
    "more": [1],
}


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_every_field_of_the_description_is_checked(field: str, value: Any, copied: Path) -> None:
    described(copied, **{field: value})
    with pytest.raises(Error) as found:
        backbones.load(f"onnx:{copied}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_size", 0), ("image_size", 10**9), ("image_size", True), ("image_size", 16), ("mean", [0, 0]),
        ("mean", [0, 0, "0"]), ("std", [1, 1, 0]), ("fit", "stretch"), ("resize", -1), ("resample", 9),
        ("resample", 1.5),
    ],
)  # fmt: skip
def test_every_number_of_the_preprocessing_is_checked(field: str, value: Any, copied: Path) -> None:
    about = json.loads((copied / DESCRIPTION).read_text())["preprocessing"]
    described(copied, preprocessing={**about, field: value})
    with pytest.raises(Error, match="cannot be loaded"):
        backbones.load(f"onnx:{copied}")


def test_the_description_is_sealed(copied: Path) -> None:
    described(copied, seal=False, logit_scale=99.0)
    with raises("backbone-damaged"):
        backbones.load(f"onnx:{copied}")


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: {"text_features": rows[:-1].clone()},
        lambda rows: {"text_features": rows.double()},
        lambda rows: {"text_features": rows * 2},
        lambda rows: {"text_features": rows * float("nan")},
        lambda rows: {"text_features": torch.nn.functional.normalize(rows[:, :8])},
        lambda rows: {"other": rows},
    ],
)
def test_the_embeddings_are_checked(change: Callable[[torch.Tensor], Any], copied: Path) -> None:
    save_file(change(load_file(copied / TEXT)["text_features"]), copied / TEXT)
    rehashed(copied)
    with raises("backbone-damaged"):
        backbones.load(f"onnx:{copied}")


def test_a_model_that_is_none_is_refused(copied: Path) -> None:
    for content in (b"", b"no model", (copied / MODEL).read_bytes()[:-900]):
        (copied / MODEL).write_bytes(content)
        rehashed(copied)
        with raises("backbone-damaged") as found:
            backbones.load(f"onnx:{copied}")
        assert "\n" not in str(found.value)


def test_names_that_lead_nowhere(small: Path, tmp_path: Path) -> None:
    with raises("backbone-not-found"):
        backbones.load(f"onnx:{tmp_path / 'nowhere'}")
    with raises("backbone-not-found"):
        backbones.load(f"onnx:{tmp_path}")
    with raises("backbone-not-found", match=f"use the name onnx:{re.escape(str(small))}"):
        backbones.load(small)


def test_the_tower_takes_any_float_tensor(small: Path) -> None:
    model = backbones.load(f"onnx:{small}")
    views = pixels(model, 2)
    turned = views.transpose(2, 3).contiguous().transpose(2, 3).double().requires_grad_()
    assert torch.equal(model.vision(turned), model.vision(views))
    assert not model.vision(turned).requires_grad
    assert np.isfinite(model.vision(views).numpy()).all()
