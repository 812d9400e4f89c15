"""The backbones against `transformers` itself, and their behaviour on what people get wrong."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from transformers import (
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
    PreTrainedTokenizerFast,
    SiglipModel,
)

import ostta
from helpers.errors import raises
from helpers.tiny_models import IMAGE_SIZE, tiny_clip, tiny_embedded, tiny_siglip, tiny_siglip2
from ostta.backbones import Backbone, HasTextTower, HasTokenStatistics, TunesPrompts, backbone_names, load, wrap
from ostta.backbones.embedded import load_embedded
from ostta.backbones.embedded.stem import Stem
from ostta.backbones.huggingface import model_folder
from ostta.backbones.preprocessing import (
    CLIP_MEAN,
    CLIP_STD,
    HALVES,
    clip_preprocessing,
    parse_preprocessing,
    read_preprocessing,
    siglip_preprocessing,
)
from ostta.backbones.prompts import prompted
from ostta.backbones.towers import ImageTower
from ostta.core.overlay import Overlay
from ostta.core.types import Error, Preprocessing
from ostta.evaluation import analyses
from ostta.methods.groups import layernorm_names

CLASSES = ["cat", "great_white_shark", "dog"]
PROMPTS = ["a photo of a cat.", "a photo of a great white shark.", "a photo of a dog."]
BUILDERS: dict[str, Callable[[Path], Path]] = {"clip": tiny_clip, "siglip": tiny_siglip, "siglip2": tiny_siglip2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: build(tmp_path_factory.mktemp(name)) for name, build in BUILDERS.items()}


@pytest.fixture(scope="module")
def loaded(folders: dict[str, Path]) -> dict[str, Any]:
    return {name: load(folder) for name, folder in folders.items()}


@pytest.fixture
def clip_copy(folders: dict[str, Path], tmp_path: Path) -> Path:
    for file in folders["clip"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def original(folder: Path, kind: str) -> Any:
    return (CLIPModel if kind == "clip" else SiglipModel).from_pretrained(folder).eval()


def edit_config(folder: Path, part: str, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config[part].update(changes)
    (folder / "config.json").write_text(json.dumps(config))


# --- towers -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", BUILDERS)
def test_features_are_those_of_transformers(folders: dict[str, Path], loaded: dict[str, Any], kind: str) -> None:
    model, backbone = original(folders[kind], kind), loaded[kind]
    pixels = torch.randn(6, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(1))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folders[kind])
    tokens = tokenizer(PROMPTS, padding="max_length", return_tensors="pt")
    with torch.no_grad():
        image = model.get_image_features(pixel_values=pixels).pooler_output
        text = model.get_text_features(**tokens).pooler_output
    classifier = backbone.classifier(CLASSES)
    assert tokens["input_ids"].shape[1] == model.config.text_config.max_position_embeddings
    torch.testing.assert_close(backbone.vision(pixels), image)
    torch.testing.assert_close(classifier, functional.normalize(text, dim=1), atol=1e-5, rtol=0)
    torch.testing.assert_close(classifier.norm(dim=1), torch.ones(3))
    assert backbone.feature_width == image.shape[1] == classifier.shape[1]
    assert backbone.logit_scale == pytest.approx(model.logit_scale.exp().item())
    if kind != "clip":
        assert (functional.normalize(image, dim=1) @ classifier.T).min() < 0


def test_old_configs_end_at_the_highest_id(tmp_path: Path, loaded: dict[str, Any]) -> None:
    torch.testing.assert_close(
        load(tiny_clip(tmp_path, legacy_end=True)).classifier(CLASSES), loaded["clip"].classifier(CLASSES)
    )


def test_a_tokenizer_that_does_not_fit_is_refused(clip_copy: Path) -> None:
    edit_config(clip_copy, "text_config", eos_token_id=7)
    with raises("tokenizer-mismatch"):
        load(clip_copy).classifier(CLASSES)


def test_siglip_needs_a_padding_token(folders: dict[str, Path]) -> None:
    backbone: Any = load(folders["siglip"])
    backbone.tokenizer.pad_token = None
    with raises("tokenizer-mismatch"):
        backbone.classifier(CLASSES)


@pytest.mark.parametrize("kind", BUILDERS)
def test_frozen_in_eval_mode_and_fp32(loaded: dict[str, Any], kind: str) -> None:
    backbone: Any = loaded[kind]
    for tower in (backbone.vision, backbone.text):
        assert not any(module.training for module in tower.modules())
        assert all(not weight.requires_grad and weight.dtype == torch.float32 for weight in tower.parameters())
    assert not backbone.classifier(CLASSES).requires_grad


def test_a_vit_b16_has_39936_layernorm_parameters() -> None:
    with torch.device("meta"):
        vision = CLIPVisionModel(CLIPVisionConfig(patch_size=16))
        tower = ImageTower(vision, nn.Linear(768, 512, bias=False))
    names = layernorm_names(tower)
    assert len(names) == 52
    assert sum(tower.get_parameter(name).numel() for name in names) == 39_936


def test_siglip_recommends_the_exact_search_and_cannot_tune_prompts(loaded: dict[str, Any]) -> None:
    clip, siglip = loaded["clip"], loaded["siglip"]
    assert siglip.defaults == {"lda": {"search": "exact"}}
    assert clip.defaults == {}
    assert len(prompted(clip, CLASSES).free) == 1
    with raises("backbone-unsupported"):
        prompted(siglip, CLASSES)


def test_what_a_backbone_can_do_is_declared(loaded: dict[str, Any], tower: nn.Module) -> None:
    kinds = (HasTextTower, TunesPrompts, HasTokenStatistics)
    found = {
        name: [isinstance(backbone, kind) for kind in kinds]
        for name, backbone in {
            **loaded,
            "embedded+maple": load("embedded+maple"),
            "wrapped": wrap(tower, torch.eye(3, 16), image_size=8),
        }.items()
    }
    assert found == {
        "clip": [True, True, False],
        "siglip": [True, False, False],
        "siglip2": [True, False, False],
        "embedded+maple": [True, True, True],
        "wrapped": [False, False, False],
    }


class FromOutside:
    """A backbone of somebody else's that is no class of ours.

    All that a `Backbone` needs, and what the embedded one can do.
    """

    def __init__(self, own: Any, *abilities: str) -> None:
        for name in (*Backbone.__annotations__, "feature_width", "weight_hash", "classifier", "unfamiliar", *abilities):
            setattr(self, name, getattr(own, name))


def test_a_class_from_outside_can_do_what_it_declares() -> None:
    own: Any = load("embedded+maple")
    views = torch.randn(8, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(0))
    for method, abilities in {"palign": ("prompted", "tower", "statistics"), "tpt": ("prompted",)}.items():
        able: Any = FromOutside(own, *abilities)
        one, other = (
            ostta.load(kind, ["cat", "dog", "ship"], method=method, identifier="all", views=8) for kind in (able, own)
        )
        assert one.step_views(views).loss == other.step_views(views).loss is not None
        with pytest.raises(Error, match="needs MaPLe prompts" if method == "palign" else "cannot tune prompts"):
            ostta.load(FromOutside(own), ["cat", "dog", "ship"], method=method)  # type: ignore[arg-type]
    adapters = [
        ostta.load(kind, ["cat", "dog", "ship"], method="unient", group="full")  # type: ignore[arg-type]
        for kind in (FromOutside(own, "text", "embed"), FromOutside(own))
    ]
    towers = [analyses.adapted_parameters(adapter) for adapter in adapters]
    assert towers[0] == towers[1] + sum(weight.numel() for weight in own.text.parameters())


# --- prompts ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", BUILDERS)
def test_a_classifier_does_not_depend_on_its_company(loaded: dict[str, Any], kind: str) -> None:
    """The longest prompt decides the padding of CLIP's batch, and with many classes there are several batches."""
    backbone = loaded[kind]
    many = [f"thing {'x' * (index % 9)}" for index in range(300)]
    together = backbone.classifier([*many, "cat"])
    torch.testing.assert_close(together[-1:], backbone.classifier(["cat"]), atol=1e-5, rtol=0)
    assert together.shape == (301, backbone.feature_width)


def test_several_templates_are_averaged_as_unit_vectors(loaded: dict[str, Any]) -> None:
    backbone = loaded["clip"]
    templates = ["a photo of a {}.", "{}", "a {one} of {} {{}"]
    with raises("template-invalid"):
        backbone.classifier(CLASSES, templates)
    templates = ["a photo of a {}.", "{}", "a {small} {}!"]
    single = torch.stack([backbone.classifier(CLASSES, [template]) for template in templates])
    expected = functional.normalize(single.mean(0), dim=1)
    torch.testing.assert_close(backbone.classifier(CLASSES, templates), expected, atol=1e-6, rtol=0)


def test_underscores_are_spaces(loaded: dict[str, Any]) -> None:
    backbone = loaded["clip"]
    assert torch.equal(backbone.classifier(["pine_tree"]), backbone.classifier(["pine tree"]))


@pytest.mark.parametrize("kind", BUILDERS)
def test_case_does_not_matter(loaded: dict[str, Any], kind: str) -> None:
    backbone = loaded[kind]
    assert torch.equal(backbone.classifier(["Siberian Tiger"]), backbone.classifier(["siberian tiger"]))


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_name_that_would_be_cut_is_refused(loaded: dict[str, Any], kind: str) -> None:
    with raises("prompt-too-long"):
        loaded[kind].classifier(["cat", "zq" * 50])


@pytest.mark.parametrize(
    ("classes", "templates", "code"),
    [
        (CLASSES, ["a photo"], "template-invalid"),
        (CLASSES, ["{} and {}"], "template-invalid"),
        (CLASSES, [], "template-invalid"),
        ([], ["{}"], "classes-invalid"),
    ],
)
def test_prompts_that_cannot_be_made(
    loaded: dict[str, Any], classes: list[str], templates: list[str], code: str
) -> None:
    with raises(code):
        loaded["clip"].classifier(classes, templates)


# --- hash -------------------------------------------------------------------------------------------------------------
def test_weight_hash(folders: dict[str, Path], tmp_path: Path, clip_copy: Path) -> None:
    first = load(folders["clip"])
    assert len(first.weight_hash) == 64
    assert load(folders["clip"]).weight_hash == first.weight_hash
    model = original(folders["clip"], "clip")
    torch.save(model.state_dict(), clip_copy / "pytorch_model.bin")
    (clip_copy / "model.safetensors").unlink()
    assert load(clip_copy).weight_hash == first.weight_hash
    with torch.no_grad():
        model.text_model.final_layer_norm.bias[3] += 1e-6
    model.save_pretrained(clip_copy)
    assert load(clip_copy).weight_hash != first.weight_hash


def test_weight_hash_is_of_the_initial_weights(folders: dict[str, Path]) -> None:
    backbone = load(folders["clip"])
    overlay = Overlay(backbone.vision, layernorm_names(backbone.vision))
    with torch.no_grad():
        overlay.parameters()[0].add_(1)
    with overlay.applied():
        inside = backbone.weight_hash
    assert inside == load(folders["clip"]).weight_hash


# --- preprocessing ----------------------------------------------------------------------------------------------------
CLIP_224 = clip_preprocessing(224)
SIGLIP_224 = siglip_preprocessing(224)


@pytest.mark.parametrize(
    ("config", "default", "expected"),
    [
        ({"size": 224, "crop_size": 224, "resample": 3}, CLIP_224, CLIP_224),
        ({"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}}, CLIP_224, CLIP_224),
        ({"size": {"shortest_edge": 256}, "crop_size": 224}, CLIP_224, dataclasses.replace(CLIP_224, resize=256)),
        (
            {"size": {"height": 224, "width": 224}, "crop_size": 224},
            CLIP_224,
            dataclasses.replace(CLIP_224, fit="square", resize=None),
        ),
        (
            {"size": {"height": 384, "width": 384}, "resample": 2},
            SIGLIP_224,
            Preprocessing(384, HALVES, HALVES, "square", None, 2),
        ),
        ({"size": {"shortest_edge": 224}}, SIGLIP_224, Preprocessing(224, HALVES, HALVES, "crop", 224)),
        ({"do_normalize": False}, SIGLIP_224, Preprocessing(224, (0.0,) * 3, (1.0,) * 3, "square")),
        (
            {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3]},
            CLIP_224,
            Preprocessing(224, (0.1, 0.2, 0.3), (1.0, 2.0, 3.0), "crop", 224),
        ),
        ({}, CLIP_224, CLIP_224),
    ],
)
def test_processor_configs(config: dict[str, Any], default: Preprocessing, expected: Preprocessing) -> None:
    assert parse_preprocessing(config, default) == expected


def test_preprocessing_of_folders(loaded: dict[str, Any], clip_copy: Path) -> None:
    expected = Preprocessing(IMAGE_SIZE, CLIP_MEAN, CLIP_STD, "crop", IMAGE_SIZE, 3)
    assert loaded["clip"].preprocessing == expected
    assert loaded["siglip"].preprocessing == Preprocessing(IMAGE_SIZE, HALVES, HALVES, "square", None, 3)
    assert loaded["siglip2"].preprocessing == Preprocessing(IMAGE_SIZE, HALVES, HALVES, "square", None, 2)
    (clip_copy / "preprocessor_config.json").unlink()
    assert load(clip_copy).preprocessing == expected
    (clip_copy / "processor_config.json").write_text(json.dumps({"image_processor": {"resample": 2}}))
    assert load(clip_copy).preprocessing == dataclasses.replace(expected, resample=2)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{"size": 64, "crop_size": 64}', "preprocessing-invalid"),
        ('{"size": {"height": 32, "width": 48}}', "preprocessing-invalid"),
        ('{"size": {"longest_edge": 32}}', "preprocessing-invalid"),
        ('{"image_mean": [1, 2]}', "preprocessing-invalid"),
        ("[]", "preprocessing-invalid"),
        ("{", "preprocessing-invalid"),
    ],
)
def test_processor_configs_that_cannot_be_followed(tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(content)
    with raises(code):
        read_preprocessing(tmp_path, clip_preprocessing(32))


# --- finding and reading ----------------------------------------------------------------------------------------------
def test_ids(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders["clip"].parent)
    backbone = load(folders["clip"].name)
    assert backbone.id == str(folders["clip"].resolve())
    assert backbone.restorable
    assert backbone.unfamiliar(CLASSES) == []
    assert load(backbone.id).weight_hash == backbone.weight_hash


def test_a_hub_id_is_read_from_the_cache_first(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def snapshot(name: str, local_files_only: bool = False, **_: Any) -> str:
        calls.append((name, local_files_only))
        return str(folders["siglip"])

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert load("some/model").id == "some/model"
    assert calls == [("some/model", True)]


def hub_cache(folder: Path, model: Path, cached: list[str], others: list[str]) -> Path:
    """A cache as huggingface_hub writes it: a repository of which the files `cached` were downloaded, and `others` were
    not.

    Returns the folder of the snapshot.
    """
    from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache

    commit, repository = "0" * 40, folder / "models--some--model"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for name in cached:
        shutil.copy(model / name, snapshot / name)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    entry = TreeCacheEntry(size=1, blob_id="1" * 40, lfs_sha256=None, lfs_size=None, xet_hash=None)
    write_tree_cache(str(repository), commit, dict.fromkeys([*cached, *others], entry))
    return snapshot


@pytest.mark.parametrize("older", [False, True])
def test_a_cached_model_is_read_without_the_network(
    older: bool, clip_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the library's own `snapshot_download`.

    A repository has files that no backbone reads, and that are never downloaded.
    """
    if older:
        torch.save(original(clip_copy, "clip").state_dict(), clip_copy / "pytorch_model.bin")
        (clip_copy / "model.safetensors").unlink()
    cached = [path.name for path in clip_copy.iterdir()]
    others = ["README.md", "tf_model.h5", *([] if older else ["pytorch_model.bin"])]
    snapshot = hub_cache(tmp_path / "cache", clip_copy, cached, others)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))

    def request(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was used")

    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.repo_info", request)
    monkeypatch.setattr("huggingface_hub.hf_api.HfApi.list_repo_tree", request)
    assert model_folder("some/model") == snapshot
    # A file that a backbone reads and that is missing is downloaded.
    (snapshot / "config.json").unlink()
    with pytest.raises(AssertionError, match="the network was used"):
        model_folder("some/model")


def test_a_hub_id_with_older_weights(clip_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    weights = original(clip_copy, "clip").state_dict()
    (clip_copy / "model.safetensors").unlink()

    def snapshot(name: str, local_files_only: bool = False, allow_patterns: Any = ()) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("nothing")
        if "pytorch_model.bin" in allow_patterns:
            torch.save(weights, clip_copy / "pytorch_model.bin")
        return str(clip_copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert load("some/model").feature_width == 24


def test_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with raises("hub-unreachable"):
        load("no/such-model")


@pytest.mark.parametrize("problem", ["timeout", "missing"])
def test_the_hub_says_no(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
    from huggingface_hub.utils import httpx

    request = httpx.Request("GET", "https://hub.invalid")

    def snapshot(name: str, local_files_only: bool = False, **_: Any) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("nothing")
        if problem == "timeout":
            raise httpx.ConnectTimeout("too slow", request=request)
        raise RepositoryNotFoundError("404", response=httpx.Response(404, request=request))

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with raises("hub-unreachable" if problem == "timeout" else "backbone-not-found"):
        load("some/model")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nowhere-at-all", Path("nowhere")])
def test_no_such_folder(name: str | Path) -> None:
    with raises("backbone-not-found"):
        load(name)


def test_not_even_an_id() -> None:
    with raises("backbone-not-found"):
        load("what/is this")
    with raises("backbone-not-found"):
        load("embeded")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "backbone-not-found"),
        ("{", "backbone-unreadable"),
        ("{}", "backbone-unreadable"),
        ('{"model_type": "siglip2"}', "model-unsupported"),
        ('{"model_type": "blip"}', "model-unsupported"),
    ],
)
def test_folders_without_a_usable_model(tmp_path: Path, content: str | None, code: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with raises(code):
        load(tmp_path)


def test_weights_that_do_not_fit(clip_copy: Path) -> None:
    edit_config(clip_copy, "vision_config", num_hidden_layers=3)
    with raises("backbone-unreadable"):
        load(clip_copy)


def test_weights_of_another_shape(clip_copy: Path) -> None:
    edit_config(clip_copy, "vision_config", intermediate_size=60)
    with raises("backbone-unreadable"):
        load(clip_copy)


def test_without_a_tokenizer(clip_copy: Path) -> None:
    (clip_copy / "tokenizer.json").unlink()
    with raises("backbone-unreadable"):
        load(clip_copy)


def test_older_tokenizer_files(clip_copy: Path, loaded: dict[str, Any]) -> None:
    vocabulary = json.loads((clip_copy / "tokenizer.json").read_text())["model"]["vocab"]
    (clip_copy / "tokenizer.json").unlink()
    (clip_copy / "vocab.json").write_text(json.dumps(vocabulary))
    (clip_copy / "merges.txt").write_text("#version: 0.2\n")
    torch.testing.assert_close(load(clip_copy).classifier(CLASSES), loaded["clip"].classifier(CLASSES))


def test_a_tokenizer_with_too_many_words(clip_copy: Path, folders: dict[str, Path]) -> None:
    (clip_copy / "tokenizer.json").write_bytes((folders["siglip2"] / "tokenizer.json").read_bytes())
    edit_config(clip_copy, "text_config", vocab_size=100)
    weights = original(folders["clip"], "clip").state_dict()
    weights["text_model.embeddings.token_embedding.weight"] = torch.zeros(100, 32)
    (clip_copy / "model.safetensors").unlink()
    torch.save(weights, clip_copy / "pytorch_model.bin")
    with raises("tokenizer-mismatch"):
        load(clip_copy).classifier(CLASSES)


@pytest.mark.parametrize(("file", "message"), [("model.safetensors", "model in"), ("tokenizer.json", "tokenizer in")])
def test_damaged_files(clip_copy: Path, file: str, message: str) -> None:
    (clip_copy / file).write_bytes((clip_copy / file).read_bytes()[:100])
    with raises("backbone-unreadable"):
        load(clip_copy)


def test_names_are_rows_of_three() -> None:
    rows = backbone_names()
    assert "embedded" in {name for name, _, _ in rows}
    assert all(len(row) == 3 and all(row) for row in rows)


def test_importing_backbones_is_light() -> None:
    code = (
        "import sys, ostta.backbones; print([n for n in ('transformers', 'huggingface_hub', 'tokenizers') if n "
        "in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_transformers(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.utils", None)
    with raises("library-missing"):
        load(folders["clip"])


# --- wrapped ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def tower() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.LayerNorm(16), nn.Dropout(0.5))


def test_wrap_leaves_the_given_module_alone(tower: nn.Module) -> None:
    text = torch.randn(3, 16)
    before = copy.deepcopy(tower.state_dict())
    backbone = wrap(tower, text, image_size=8)
    assert tower.training
    assert all(weight.requires_grad for weight in tower.parameters())
    assert not backbone.vision.training
    assert not any(weight.requires_grad for weight in backbone.vision.parameters())
    with torch.no_grad():
        next(tower.parameters()).add_(1)
    pixels = torch.randn(2, 3, 8, 8)
    tower.load_state_dict(before)
    torch.testing.assert_close(backbone.vision(pixels), tower.eval()(pixels))
    text.zero_()
    torch.testing.assert_close(backbone.classifier(CLASSES).norm(dim=1), torch.ones(3))


def test_what_a_wrapped_backbone_is(tower: nn.Module) -> None:
    backbone = wrap(
        tower.half(), 5 * torch.eye(3, 16, dtype=torch.float64), image_size=8, logit_scale=20, std=(1, 1, 1)
    )
    assert (backbone.id, backbone.restorable, backbone.logit_scale, backbone.feature_width) == (
        "wrapped",
        False,
        20.0,
        16,
    )
    assert backbone.preprocessing == Preprocessing(8, CLIP_MEAN, (1.0, 1.0, 1.0), "crop", 8)
    assert torch.equal(backbone.classifier(CLASSES), torch.eye(3, 16))
    assert backbone.vision(torch.zeros(1, 3, 8, 8)).dtype == torch.float32
    assert backbone.unfamiliar(CLASSES) == []
    with raises("text-features-invalid"):
        backbone.classifier(["cat", "dog"])
    with raises("backbone-unsupported"):
        prompted(backbone, CLASSES)


def test_wrapped_weight_hash(tower: nn.Module) -> None:
    text = torch.eye(3, 16)
    first = wrap(tower, text, image_size=8).weight_hash
    assert wrap(copy.deepcopy(tower), 2 * text, image_size=8).weight_hash == first
    assert wrap(tower, text.flip(0), image_size=8).weight_hash != first
    with torch.no_grad():
        next(tower.parameters())[0, 0] += 1
    assert wrap(tower, text, image_size=8).weight_hash != first


def test_wrap_takes_a_clip_vision_model(folders: dict[str, Path], loaded: dict[str, Any]) -> None:
    model = CLIPVisionModelWithProjection.from_pretrained(folders["clip"])
    clip = loaded["clip"]
    backbone = wrap(model, clip.classifier(CLASSES), image_size=IMAGE_SIZE)
    pixels = torch.randn(2, 3, IMAGE_SIZE, IMAGE_SIZE)
    torch.testing.assert_close(backbone.vision(pixels), clip.vision(pixels))
    assert len(layernorm_names(backbone.vision)) == len(layernorm_names(clip.vision))


class Odd(nn.Module):
    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"features": pixels}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"text_features": torch.eye(3, 15)}, "image-tower-invalid"),
        ({"text_features": torch.zeros(3, 16)}, "text-features-invalid"),
        ({"text_features": torch.full((3, 16), float("nan"))}, "text-features-invalid"),
        ({"text_features": torch.ones(16)}, "text-features-invalid"),
        ({"image_size": 9}, "image-tower-invalid"),
        ({"logit_scale": 0.0}, "wrap-invalid"),
        ({"logit_scale": float("inf")}, "wrap-invalid"),
        ({"mean": [0.5]}, "wrap-invalid"),
        ({"std": [1.0, 0.0, 1.0]}, "wrap-invalid"),
        ({"centre": torch.zeros(15)}, "wrap-invalid"),
        ({"centre": torch.full((16,), float("nan"))}, "wrap-invalid"),
        ({"vision": Odd()}, "image-tower-invalid"),
        ({"vision": torch.zeros}, "wrap-invalid"),
    ],
)
def test_what_cannot_be_wrapped(tower: nn.Module, change: dict[str, Any], code: str) -> None:
    given: dict[str, Any] = {"vision": tower, "text_features": torch.eye(3, 16), "image_size": 8, **change}
    with raises(code):
        wrap(given.pop("vision"), given.pop("text_features"), **given)


BY_NAME = dict(zip([*CLASSES, "ant"], torch.eye(4, 16), strict=True))


def test_wrap_takes_text_features_by_class_name(tower: nn.Module) -> None:
    backbone = wrap(tower, {name: 3 * row.numpy() for name, row in BY_NAME.items()}, image_size=8)
    assert torch.equal(backbone.classifier(["ant", "cat"]), torch.stack([BY_NAME["ant"], BY_NAME["cat"]]))
    assert backbone.feature_width == 16
    with raises("class-not-stored"):
        ostta.load(backbone, ["cat", "bee"], method="zero_shot")
    assert wrap(tower, {**BY_NAME, "ant": BY_NAME["cat"]}, image_size=8).weight_hash != backbone.weight_hash
    assert wrap(None, BY_NAME).classifier(["dog"]).shape == (1, 16)


def test_wrap_takes_a_function_of_class_names(tower: nn.Module, tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def embed(names: list[str]) -> torch.Tensor:
        asked.append(names)
        return torch.stack([2 * BY_NAME.get(name, torch.ones(16)) for name in names]).requires_grad_()

    backbone = wrap(tower, embed, image_size=8)
    assert (asked, backbone.feature_width) == ([], 16)
    one = ostta.load(backbone, CLASSES, method="dpe")
    assert asked == [CLASSES]
    assert torch.equal(one.classifier, torch.eye(3, 16))
    assert not one.classifier.requires_grad
    alone = ostta.load(wrap(None, embed), CLASSES, method="dpe")
    first = alone.step_features(torch.randn(16))
    alone.save(tmp_path / "state.ostta")
    again = ostta.Adapter.restore(tmp_path / "state.ostta", wrap(None, embed))
    assert (again.steps, first.index in range(3)) == (1, True)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "text-features-invalid"),
        ({"cat": torch.zeros(16)}, "text-features-invalid"),
        ({"cat": torch.ones(16), "dog": torch.ones(15)}, "text-features-invalid"),
        ({"cat": torch.ones(1, 16)}, "text-features-invalid"),
        ({"cat": "a cat"}, "text-features-invalid"),
        ({"cat": torch.ones(15), "dog": torch.ones(15)}, "image-tower-invalid"),
        (lambda names: torch.ones(len(names), 15), "text-features-invalid"),
        (lambda names: torch.ones(2, 16), "text-features-invalid"),
        (lambda names: {}, "text-features-invalid"),
        (lambda names: names.shape, "text-features-invalid"),
        (lambda names: torch.zeros(len(names), 16), "text-features-invalid"),
    ],
)
def test_text_features_that_cannot_be_used(tower: nn.Module, given: Any, code: str) -> None:
    with raises(code) as found:
        wrap(tower, given, image_size=8).classifier(CLASSES)
    assert str(found.value).endswith(".")
    assert "\n" not in str(found.value)


# --- embedded ---------------------------------------------------------------------------------------------------------
def test_embedded(tmp_path: Path) -> None:
    folder = tiny_embedded(tmp_path)
    backbone = load_embedded(folder)
    assert (backbone.id, backbone.restorable, backbone.defaults) == ("embedded", True, {})
    assert backbone.unfamiliar(["Cat", "pickup_truck", "unicorn"]) == ["unicorn"]
    assert all(weight.dtype == torch.float32 and not weight.is_meta for weight in backbone.vision.parameters())
    positions: Any = backbone.vision.get_submodule("vision_model.embeddings").position_ids
    assert positions.tolist() == [list(range(17))]
    assert backbone.vision(torch.randn(2, 3, IMAGE_SIZE, IMAGE_SIZE)).shape == (2, 24)
    assert backbone.classifier(CLASSES).shape == (3, 24)
    assert load_embedded(folder).weight_hash == backbone.weight_hash
    (folder / "defaults.json").write_text('{"rosita": {"lr": 0.01}}')
    assert load_embedded(folder).defaults == {"rosita": {"lr": 0.01}}


def test_embedded_equals_the_model_that_was_saved(tmp_path: Path) -> None:
    folder = tiny_embedded(tmp_path)
    backbone = load_embedded(folder)
    model = CLIPModel.from_pretrained(tiny_clip(tmp_path / "clip")).eval()
    model.vision_model.embeddings.patch_embedding = Stem(48)
    model.load_state_dict({name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()})
    pixels = torch.randn(2, 3, IMAGE_SIZE, IMAGE_SIZE)
    with torch.no_grad():
        expected = model.get_image_features(pixel_values=pixels).pooler_output
    torch.testing.assert_close(backbone.vision(pixels), expected)


def test_embedded_is_missing_or_damaged(tmp_path: Path) -> None:
    with raises("weights-missing"):
        load_embedded(tmp_path)
    folder = tiny_embedded(tmp_path)
    edit_config(folder, "vision_config", num_hidden_layers=1)
    with raises("weights-wrong"):
        load_embedded(folder)
