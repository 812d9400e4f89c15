"""Backbones from models that are loaded already.

They give the same as loaded by name, and the models stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoProcessor,
    CLIPModel,
    CLIPVisionModelWithProjection,
    PreTrainedTokenizerFast,
    SiglipImageProcessor,
    SiglipModel,
)

import ostta
from helpers.cases import images, trace
from helpers.errors import raises
from helpers.open_clip_models import (
    MEAN,
    SIDE,
    STD,
    WIDTH,
    CenterCrop,
    Compose,
    InterpolationMode,
    ModifiedResNet,
    Normalize,
    RandomResizedCrop,
    Resize,
    ToTensor,
    open_model,
    tokenizer,
    transform,
)
from helpers.tiny_models import IMAGE_SIZE, tiny_clip, tiny_siglip
from ostta import Error
from ostta.backbones import HasTextTower, TunesPrompts, from_open_clip, from_transformers, load
from ostta.core.types import Preprocessing
from ostta.data.views import canonical
from ostta.evaluation import analyses
from ostta.live import StreamPool

CLASSES = ["cat", "dog", "ship"]
PIXELS = torch.randn(4, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "clip": tiny_clip(tmp_path_factory.mktemp("clip")),
        "siglip": tiny_siglip(tmp_path_factory.mktemp("siglip")),
    }


def pair(folder: Path, kind: str = "clip", **options: Any) -> tuple[Any, Any]:
    if kind == "clip":
        return CLIPModel.from_pretrained(folder, **options), AutoProcessor.from_pretrained(folder)
    # Its usual class needs a library that is not here.
    words = PreTrainedTokenizerFast.from_pretrained(folder)
    pictures = SiglipImageProcessor.from_pretrained(folder)
    return SiglipModel.from_pretrained(folder, **options), SimpleNamespace(tokenizer=words, image_processor=pictures)


def condition(model: nn.Module) -> list[Any]:
    """All that somebody could notice about a model."""
    modes = [(name, type(part), part.training) for name, part in model.named_modules()]
    weights = [(name, id(p), p.requires_grad, p._version, p.grad is None) for name, p in model.named_parameters()]
    return [*modes, *weights, *((name, id(buffer), buffer._version) for name, buffer in model.named_buffers())]


def learn(one: ostta.Adapter) -> list[ostta.Prediction]:
    """Some steps, of which the reliable ones teach."""
    return list(one.stream(images(24)))


# --- transformers -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_it_is_the_backbone_that_the_folder_gives(folders: dict[str, Path], kind: str) -> None:
    by_name: Any = load(folders[kind])
    model, processor = pair(folders[kind], kind)
    given = from_transformers(model, processor)
    assert given.vision(PIXELS).equal(by_name.vision(PIXELS))
    assert given.classifier(CLASSES).equal(by_name.classifier(CLASSES))
    for name in ("preprocessing", "logit_scale", "feature_width", "defaults", "weight_hash", "trainable"):
        assert getattr(given, name) == getattr(by_name, name), name
    assert type(given) is type(by_name)
    assert (given.id, given.restorable) == (str(folders[kind]), False)
    first, second = (learn(ostta.load(model, CLASSES, lr=0.01, method="rosita")) for model in (given, by_name))
    assert trace(first) == trace(second)


@pytest.mark.parametrize("group", ["layernorm", "full", "lora", "prompts"])
def test_the_model_stays_as_it_is(folders: dict[str, Path], group: str) -> None:
    model, processor = pair(folders["clip"])
    model.train()
    model.vision_model.encoder.layers[0].eval()
    model.text_model.requires_grad_(False)
    before, numbers = condition(model), {name: value.clone() for name, value in model.state_dict().items()}
    one = ostta.load((model, processor), CLASSES, method="unient", group=group, lr=0.05, scale=20.0)
    assert any(answer.adapted for answer in learn(one))
    assert condition(model) == before
    assert all(value.equal(numbers[name]) for name, value in model.state_dict().items())


def test_the_numbers_are_shared_and_what_is_done_to_the_model_does_not_reach_the_backbone(
    folders: dict[str, Path],
) -> None:
    model, processor = pair(folders["clip"])
    backbone = from_transformers(model, processor)
    assert {p.data_ptr() for p in backbone.vision.parameters()} <= {p.data_ptr() for p in model.parameters()}
    expected, words = backbone.vision(PIXELS), backbone.classifier(CLASSES)
    model.train().half().requires_grad_(False)
    model.vision_model.post_layernorm = nn.Identity()
    assert not any(part.training for part in backbone.vision.modules())
    assert backbone.vision(PIXELS).equal(expected)
    assert backbone.classifier(CLASSES).equal(words)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_keeps_its_precision(folders: dict[str, Path], kind: str, dtype: torch.dtype) -> None:
    model, processor = pair(folders[kind], kind, dtype=dtype)
    one = ostta.load((model, processor), CLASSES, lr=0.01, features=True, method="rosita")
    assert {p.dtype for p in one.backbone.vision.parameters()} == {dtype}
    assert one.classifier.dtype == torch.float32
    assert one.state.overlay.parameters()[0].dtype == torch.float32
    answers = learn(one)
    view = canonical(images(1)[0], one.backbone.preprocessing)[None].to(dtype)
    tokens = processor.tokenizer(
        [f"a photo of a {name}." for name in CLASSES], padding="max_length", return_tensors="pt"
    )
    with torch.no_grad():
        image = model.get_image_features(pixel_values=view).pooler_output.float()
        text = model.get_text_features(**tokens).pooler_output.float()
    assert float(functional.cosine_similarity(torch.tensor(answers[0].features), image[0], dim=0)) > 0.999
    assert float(functional.cosine_similarity(one.classifier, text).min()) > 0.999
    assert any(answer.adapted for answer in answers)
    assert all(torch.isfinite(value).all() for value in one.state.overlay.parameters())


def test_a_model_that_was_made_in_inference_mode_can_be_learned_on(folders: dict[str, Path]) -> None:
    with torch.inference_mode():
        given = pair(folders["clip"])
        one = ostta.load(given, CLASSES, method="unient", scale=20.0)
        assert any(answer.adapted for answer in learn(one))


def test_state_files_are_restored_where_the_weights_are_the_same(folders: dict[str, Path], tmp_path: Path) -> None:
    given, file = pair(folders["clip"]), tmp_path / "state.ostta"
    one = ostta.load(given, CLASSES, lr=0.01, method="rosita")
    learn(one)
    one.save(file)
    expected = trace(one.stream(images(36)[24:]))
    for backbone in (given, from_transformers(*given), folders["clip"]):
        assert trace(ostta.Adapter.restore(file, backbone).stream(images(36)[24:])) == expected
    with pytest.raises(
        Error, match=r"^.*was saved on a backbone that was passed as an object: pass it again as `backbone=`\.$"
    ):
        ostta.Adapter.restore(file)
    with torch.no_grad():
        given[0].text_model.final_layer_norm.bias.add_(1.0)
    with raises("state-mismatch", match="belongs to a model with other weights"):
        ostta.Adapter.restore(file, given)


def test_a_pool_takes_it_too(folders: dict[str, Path]) -> None:
    pool = StreamPool(pair(folders["clip"]))
    adapter = pool.add("door", CLASSES, seed=3, method="rosita")
    assert adapter.backbone is pool.backbone
    assert pool.step({"door": images(1)[0]})["door"].index in range(3)


def quantised(model: Any) -> Any:
    model.vision_model.post_layernorm.weight = nn.Parameter(torch.ones(48, dtype=torch.int8), requires_grad=False)
    return model


def spread(model: Any) -> Any:
    model.vision_model.post_layernorm.to("meta")
    return model


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m, p: m, "backbone-invalid"),
        (lambda m, p: (m,), "backbone-invalid"),
        (lambda m, p: (m, p.tokenizer), "model-unsupported"),
        (lambda m, p: (m, SimpleNamespace(tokenizer=p.tokenizer)), "model-unsupported"),
        (lambda m, p: (nn.Linear(2, 2), p), "model-unsupported"),
        (lambda m, p: ("openai/clip", p), "model-unsupported"),
        (lambda m, p: (m.vision_model, p), "model-unsupported"),
        (lambda m, p: (quantised(m), p), "model-unsupported"),
        (lambda m, p: (spread(m), p), "model-unsupported"),
        (lambda m, p: (m.double(), p), "model-unsupported"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken(folders: dict[str, Path], change: Callable[[Any, Any], Any], code: str) -> None:
    with raises(code) as found:
        ostta.load(change(*pair(folders["clip"])), CLASSES, method="rosita")
    assert "\n" not in str(found.value)


def test_half_of_a_model_or_another_family_is_refused(folders: dict[str, Path]) -> None:
    model, processor = pair(folders["clip"])
    half = CLIPVisionModelWithProjection.from_pretrained(folders["clip"])
    with raises("model-unsupported"):
        from_transformers(half, processor)
    model.config.model_type = "siglip2"
    with raises("model-unsupported"):
        from_transformers(model, processor)
    model.config.model_type = "clip"
    processor.image_processor.crop_size = {"height": 64, "width": 64}
    with raises("preprocessing-invalid"):
        from_transformers(model, processor)


# --- open_clip --------------------------------------------------------------------------------------------------------
class WithTokens(ModifiedResNet):
    """As CoCa's: the features, and tokens beside them."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), torch.zeros(len(x), 4, WIDTH)


@pytest.mark.parametrize("sigmoid", [False, True])
def test_an_open_clip_is_what_its_model_gives(sigmoid: bool) -> None:
    model = open_model(sigmoid=sigmoid)
    backbone = from_open_clip(model, tokenizer, transform())
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(backbone.vision(PIXELS), model.encode_image(PIXELS))
        prompts = tokenizer([f"a photo of a {name}." for name in CLASSES])
        expected = model.encode_text(prompts, normalize=True)
    torch.testing.assert_close(backbone.classifier(CLASSES), expected)
    assert backbone.logit_scale == pytest.approx(torch.tensor(3.0).exp().item())
    assert (backbone.id, backbone.restorable, backbone.feature_width) == ("open_clip", False, WIDTH)
    assert backbone.defaults == ({"lda": {"search": "exact"}} if sigmoid else {})
    assert backbone.preprocessing == Preprocessing(SIDE, MEAN, STD, "crop", SIDE, 3)
    assert isinstance(backbone, HasTextTower)
    assert not isinstance(backbone, TunesPrompts)
    several = backbone.classifier(CLASSES, ["{}", "no {}"])
    torch.testing.assert_close(several[0], backbone.classifier(["cat"], ["{}", "no {}"])[0])


@pytest.mark.parametrize(
    ("visual", "group"),
    [("vit", "layernorm"), ("vit", "full"), ("vit", "last_block"), ("resnet", "norm"), ("tokens", "norm")],
)
def test_an_open_clip_learns_and_its_model_stays_as_it_is(visual: str, group: str, tmp_path: Path) -> None:
    towers: dict[str, Any] = {"vit": {}, "resnet": {"visual": ModifiedResNet}, "tokens": {"visual": WithTokens}}
    model = open_model(**towers[visual])
    before, numbers = condition(model), {name: value.clone() for name, value in model.state_dict().items()}
    given = (model, tokenizer, transform())
    one = ostta.load(given, CLASSES, method="unient", group=group, lr=0.05, scale=20.0)
    assert any(answer.adapted for answer in learn(one))
    assert condition(model) == before
    assert all(value.equal(numbers[name]) for name, value in model.state_dict().items())
    if group == "full":
        # All but the temperature.
        assert analyses.adapted_parameters(one) == sum(p.numel() for p in model.parameters()) - 1
    one.save(tmp_path / "state.ostta")
    again = ostta.Adapter.restore(tmp_path / "state.ostta", given)
    assert trace(again.stream(images(30)[24:])) == trace(one.stream(images(30)[24:]))
    with torch.no_grad():
        model.visual.conv1.weight.add_(1.0)
    with raises("state-mismatch", match="belongs to a model with other weights"):
        ostta.Adapter.restore(tmp_path / "state.ostta", given)


def test_the_layernorms_of_a_resnet_are_missed_by_name() -> None:
    with raises("group-unsupported", match='no LayerNorm, but BatchNorm2d: train these with the group "norm"'):
        ostta.load((open_model(ModifiedResNet), tokenizer, transform()), CLASSES, method="rosita")


def test_an_open_clip_in_half_precision() -> None:
    model = open_model().to(torch.bfloat16)
    one = ostta.load((model, tokenizer, transform()), CLASSES, method="unient", scale=20.0, lr=0.05)
    assert one.classifier.dtype == torch.float32
    assert any(answer.adapted for answer in learn(one))


def test_prompts_that_an_open_clip_would_cut() -> None:
    backbone = from_open_clip(open_model(), tokenizer, transform())
    with raises("prompt-too-long"):
        backbone.classifier(["cat", "x" * 40], ["{}", "a {}"])
    with raises("prompt-invalid"):
        backbone.classifier(["cat<|endoftext|>"])
    many = [f"thing {number}" for number in range(300)]
    assert backbone.classifier(many, ["{}"]).shape == (300, WIDTH)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (transform(), Preprocessing(SIDE, MEAN, STD, "crop", SIDE, 3)),
        (transform(40), Preprocessing(SIDE, MEAN, STD, "crop", 40, 3)),
        (transform((SIDE, SIDE), InterpolationMode.BILINEAR), Preprocessing(SIDE, MEAN, STD, "square", None, 2)),
    ],
)
def test_a_transform_is_followed(given: Compose, expected: Preprocessing) -> None:
    backbone = from_open_clip(open_model(), tokenizer, given)
    assert backbone.preprocessing == expected
    image = images(1)[0].resize((96, 64))
    torch.testing.assert_close(canonical(image, backbone.preprocessing), given(image), atol=1e-5, rtol=0)


class Inverted(Normalize):
    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().__call__(1 - pixels)


Inverted.__name__ = "Normalize"


class DoesMore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        own = open_model()
        self.visual, self.own, self.logit_scale = own.visual, own, own.logit_scale
        self.head = nn.Linear(WIDTH, WIDTH)

    def encode_image(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.own.encode_image(image))

    def encode_text(self, text: torch.Tensor) -> torch.Tensor:
        return self.own.encode_text(text)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model": nn.Linear(2, 2)}, "model-unsupported"),
        ({"model": "ViT-B-32"}, "model-unsupported"),
        ({"model": DoesMore()}, "model-unsupported"),
        ({"tokenizer": None}, "model-unsupported"),
        ({"tokenizer": lambda texts: {"input_ids": texts}}, "tokenizer-mismatch"),
        ({"tokenizer": lambda texts: tokenizer(texts) + 100}, "model-unsupported"),
        ({"transform": lambda image: image}, "preprocessing-invalid"),
        ({"transform": Compose(RandomResizedCrop(SIDE), ToTensor(), Normalize(MEAN, STD))}, "preprocessing-invalid"),
        ({"transform": transform(SIDE, InterpolationMode.LANCZOS)}, "preprocessing-invalid"),
        ({"transform": Compose(Resize((32, 48)), ToTensor(), Normalize(MEAN, STD))}, "preprocessing-invalid"),
        (
            {"transform": Compose(Resize(SIDE), CenterCrop((SIDE, SIDE)), ToTensor(), Inverted(MEAN, STD))},
            "preprocessing-invalid",
        ),
        ({"transform": Compose(Resize(36), CenterCrop((36, 36)), ToTensor(), Normalize(MEAN, STD))}, ""),
    ],
)
def test_what_is_no_open_clip(change: dict[str, Any], code: str) -> None:
    given = {"model": open_model(), "tokenizer": tokenizer, "transform": transform(), **change}
    if not code:  # an image tower without positions takes any size
        assert from_open_clip(**given).preprocessing.image_size == 36
        return
    with raises(code) as found:
        from_open_clip(**given)
    assert "\n" not in str(found.value)
