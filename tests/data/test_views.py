"""Views: the canonical one is transformers' to the last bit.

The augmented ones follow torchvision's rule and the seed.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from helpers.errors import raises
from helpers.pictures import colour_modes, encoded, noise
from ostta.core.types import Preprocessing
from ostta.data import views as views_module
from ostta.data.images import read_image
from ostta.data.views import Views, augmented, canonical, pixels_to_tensor

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
CLIP = Preprocessing(224, MEAN, STD)
SIGLIP = Preprocessing(224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), fit="square")
SMALL = Preprocessing(32, MEAN, STD)
SIZES = [
    (37, 91),
    (91, 37),
    (1, 1),
    (3, 500),
    (500, 3),
    (224, 224),
    (640, 427),
    (225, 224),
    (32, 32),
    (28, 28),
    (223, 449),
]


@pytest.fixture(scope="module")
def processors() -> dict[str, object]:
    clip = pytest.importorskip("transformers.models.clip.image_processing_pil_clip")
    siglip = pytest.importorskip("transformers.models.siglip.image_processing_pil_siglip")
    return {"clip": clip.CLIPImageProcessorPil(), "siglip": siglip.SiglipImageProcessorPil()}


def check(image: Image.Image, processors: dict[str, object]) -> None:
    for name, preprocessing in (("clip", CLIP), ("siglip", SIGLIP)):
        theirs = processors[name](images=image, return_tensors="pt")["pixel_values"][0]  # type: ignore[operator]
        ours = canonical(read_image(image), preprocessing)
        assert ours.dtype == torch.float32
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= 1e-6


@pytest.mark.parametrize("size", SIZES)
def test_canonical_is_that_of_transformers(size: tuple[int, int], processors: dict[str, object]) -> None:
    check(Image.fromarray(noise(*size)), processors)


@pytest.mark.parametrize("kind", list(colour_modes()))
def test_canonical_is_that_of_transformers_in_all_colours(kind: str, processors: dict[str, object]) -> None:
    check(colour_modes()[kind], processors)


def test_canonical_of_a_turned_photo(processors: dict[str, object]) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(Image.fromarray(noise(91, 37)), "JPEG", exif=exif)
    with Image.open(io.BytesIO(content)) as opened:
        upright = ImageOps.exif_transpose(opened)
    theirs = processors["clip"](images=upright, return_tensors="pt")["pixel_values"][0]  # type: ignore[operator]
    assert (canonical(read_image(content), CLIP) - theirs).abs().max() <= 1e-6


@pytest.mark.parametrize(("resize", "crop"), [(32, 64), (33, 64), (20, 37), (64, 37), (256, 224), (7, 8)])
def test_resize_and_crop_that_differ(resize: int, crop: int, processors: dict[str, object]) -> None:
    processor = type(processors["clip"])(
        size={"shortest_edge": resize}, crop_size={"height": crop, "width": crop}, resample=2
    )
    ours_how = Preprocessing(crop, MEAN, STD, resize=resize, resample=2)
    for size in ((40, 40), (41, 60), (60, 41), (200, 31)):
        image = Image.fromarray(noise(*size))
        theirs = processor(images=image, return_tensors="pt")["pixel_values"][0]
        assert (canonical(image, ours_how) - theirs).abs().max() <= 1e-6


@pytest.mark.parametrize("size", [(500, 3), (3, 500), (641, 90), (40, 33)])
@pytest.mark.parametrize("resize", [24, 32, 50])
def test_the_shortcut_for_strips(size: tuple[int, int], resize: int, monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.fromarray(noise(*size))
    how = Preprocessing(32, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), resize=resize)
    exact = canonical(image, how)
    monkeypatch.setattr(views_module, "_MAX_RESIZED_PIXELS", 0)
    difference = (canonical(image, how) - exact).abs() * 255
    assert difference.max() < 16
    assert difference.mean() < 0.5


def test_a_strip_of_a_million_pixels() -> None:
    assert canonical(Image.new("RGB", (1_000_000, 1), (9, 9, 9)), CLIP).shape == (3, 224, 224)


def test_an_unknown_fit() -> None:
    with raises("preprocessing-invalid", match=r"'stretch'.*'crop' or 'square'"):
        canonical(Image.new("RGB", (4, 4)), Preprocessing(32, MEAN, STD, fit="stretch"))


def test_pixels_to_tensor_normalises() -> None:
    pixels = noise()
    expected = (pixels.astype(np.float64) / 255 - MEAN) / STD
    assert np.abs(pixels_to_tensor(pixels, CLIP).numpy() - expected.transpose(2, 0, 1)).max() < 1e-6


def test_augmented_views_follow_the_rule() -> None:
    generator = np.random.default_rng(0)
    boxes = np.array([views_module._random_box((640, 427), generator) for _ in range(3000)])
    left, top, right, bottom = boxes.T
    width, height = right - left, bottom - top
    assert left.min() >= 0
    assert top.min() >= 0
    assert right.max() <= 640
    assert bottom.max() <= 427
    ratio, area = width / height, width * height / (640 * 427)
    # Rounding to whole pixels moves ratio and area a little past their ends.
    assert ratio.min() > 0.74
    assert ratio.max() < 1.35
    assert 0.078 < area.min() < 0.1
    small = area < 0.3  # These always fit, so their ratios are as drawn: log-uniform around 1.
    assert abs(np.log(ratio[small]).mean()) < 0.02
    # Large crops miss more often: the same rule as one big rejection sample.
    drawn_area, drawn_ratio = (
        generator.uniform(0.08, 1, 200_000),
        np.exp(generator.uniform(*np.log([3 / 4, 4 / 3]), 200_000)),
    )
    whole = 640 * 427
    fits = (drawn_area * whole * drawn_ratio <= 640**2) & (drawn_area * whole / drawn_ratio <= 427**2)
    assert area.mean() == pytest.approx(drawn_area[fits].mean(), abs=0.015)


@pytest.mark.parametrize(
    ("size", "box"), [((1, 1), (0, 0, 1, 1)), ((1, 500), (0, 249, 1, 250)), ((500, 3), (248, 0, 252, 3))]
)
def test_strips_fall_back_to_the_centre(size: tuple[int, int], box: tuple[int, int, int, int]) -> None:
    class Corner:
        """Draws the largest area each time, so that no try fits a strip."""

        def uniform(self, low: float, high: float) -> float:
            return high

        def integers(self, low: int, high: int) -> int:
            return low

    assert views_module._random_box(size, Corner()) == box  # type: ignore[arg-type]


def test_half_of_the_augmented_views_are_mirrored() -> None:
    ramp = np.repeat(np.arange(64, dtype=np.uint8)[None, :, None] * 4, 64, 0).repeat(3, 2)
    made = Views.of_image(Image.fromarray(ramp), SMALL, 0, 0).augmented(400)
    mirrored = (made[..., 0] > made[..., -1]).all(dim=(1, 2)).float().mean()
    assert 0.42 < mirrored < 0.58


def test_a_large_crop_is_the_same_and_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.fromarray(noise(90, 70))
    usual = augmented(image, SMALL, np.random.default_rng(3))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(augmented(image, SMALL, np.random.default_rng(3)), usual)


def test_views_depend_on_seed_step_and_number_alone() -> None:
    image = Image.fromarray(noise(90, 70))
    many = Views.of_image(image, SMALL, 5, 7).augmented(8)
    one_by_one = Views.of_image(image, SMALL, 5, 7)
    assert torch.equal(one_by_one.augmented(1), many[:1])
    assert torch.equal(one_by_one.augmented(8), many)
    assert torch.equal(one_by_one.augmented(3), many[:3])
    assert not torch.equal(many[0], many[1])
    for seed, step in ((6, 7), (5, 8), (7, 5)):
        assert not torch.equal(Views.of_image(image, SMALL, seed, step).augmented(8), many)


def test_views_are_made_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("canonical", "augmented"):
        original = getattr(views_module, name)
        monkeypatch.setattr(views_module, name, lambda *a, n=name, f=original: (calls.append(n), f(*a))[1])
    views = Views.of_image(Image.fromarray(noise()), SMALL, 0, 0)
    views.require(64)
    assert calls == []
    assert views.canonical.shape == (1, 3, 32, 32)
    assert torch.equal(views.canonical[0], canonical(Image.fromarray(noise()), SMALL))
    assert calls == ["canonical"]
    assert views.augmented(2).shape == (2, 3, 32, 32)
    assert views.augmented(2).shape == (2, 3, 32, 32)
    assert calls == ["canonical", "augmented", "augmented"]
    assert views.augmented(0).shape == (0, 3, 32, 32)


def test_views_of_a_tensor() -> None:
    tensor = torch.randn(4, 3, 32, 32)
    views = Views.of_tensor(tensor, SMALL)
    assert torch.equal(views.canonical, tensor[:1])
    assert torch.equal(views.augmented(2), tensor[1:3])
    views.require(4)
    with raises("views-invalid", match="4 views were given, but this method needs 5"):
        views.require(5)
    with raises("views-invalid", match="needs 5"):
        views.augmented(4)
    assert Views.of_tensor(tensor.half()).canonical.dtype == torch.float32
    assert Views.of_tensor(tensor * float("nan")).canonical.isnan().all()


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(3, 32, 32), r"\[views, 3, height, width\], not torch\.float32 \[3, 32, 32\]"),
        (torch.zeros(1, 4, 32, 32), r"\[1, 4, 32, 32\]"),
        (torch.zeros(0, 3, 32, 32), r"\[0, 3, 32, 32\]"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "torch.uint8"),
        (torch.zeros(1, 3, 32, 33), "32 x 33 pixels.*takes 32 x 32"),
        (np.zeros((1, 3, 32, 32), np.float32), "ndarray"),
    ],
)
def test_tensors_that_are_no_views(tensor: torch.Tensor, words: str) -> None:
    with raises("views-invalid", match=words):
        Views.of_tensor(tensor, SMALL)


def test_negative_seeds_are_refused() -> None:
    with raises("seed-invalid", match="Seed -1"):
        Views.of_image(Image.new("RGB", (4, 4)), SMALL, -1, 0)
