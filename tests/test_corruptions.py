"""Corruptions: reproducible, growing with severity, and what their recipes say."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostta.core.types import Error
from ostta.data.corruptions import CORRUPTIONS, SIDE, centre_zoom, corrupt, corruption_names, streak
from ostta.data.datasets import open_dataset


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    pytest.importorskip("pyarrow")
    dataset = open_dataset("sample:cifar10", limit=60)
    return [np.asarray(dataset.image(i)) for i in range(60)]


def flat(value: int) -> np.ndarray:
    return np.full((SIDE, SIDE, 3), value, np.uint8)


def test_names() -> None:
    assert set(corruption_names()) == {"snow", "gaussian_noise", "motion_blur", "jpeg"}
    assert all(len(corruption.levels) == 5 for corruption in CORRUPTIONS.values())


@pytest.mark.parametrize("name", corruption_names())
def test_reproducible(name: str, images: list[np.ndarray]) -> None:
    before = images[0].copy()
    first = corrupt(images[0], name, 5, seed=1, index=2)
    assert first.dtype == np.uint8
    assert first.shape == images[0].shape
    assert np.array_equal(first, corrupt(images[0], name, 5, seed=1, index=2))
    assert np.array_equal(images[0], before)
    if name != "jpeg":
        for seed, index in ((2, 2), (1, 3), (2, 1)):
            assert not np.array_equal(first, corrupt(images[0], name, 5, seed=seed, index=index))


@pytest.mark.parametrize("name", corruption_names())
def test_worse_with_severity(name: str, images: list[np.ndarray]) -> None:
    errors = [
        np.mean([
            np.abs(corrupt(image, name, severity, seed=0, index=i).astype(float) - image).mean()
            for i, image in enumerate(images)
        ])
        for severity in range(1, 6)
    ]  # fmt: skip
    assert errors == sorted(errors)
    assert errors[4] > 1.3 * errors[0]


@given(
    name=st.sampled_from(corruption_names()),
    severity=st.integers(1, 5),
    seed=st.integers(0, 2**40),
    index=st.integers(0, 2**20),
)
@settings(max_examples=60, deadline=None)
def test_any_pixels_any_numbers(name: str, severity: int, seed: int, index: int) -> None:
    image = np.random.default_rng(index).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    assert corrupt(image, name, severity, seed=seed, index=index).shape == image.shape


def test_noise_has_the_deviation_of_its_level() -> None:
    for severity, deviation in enumerate((0.04, 0.06, 0.08, 0.09, 0.10), start=1):
        made = np.stack([corrupt(flat(128), "gaussian_noise", severity, seed=0, index=i) for i in range(20)])
        assert made.std() / 255 == pytest.approx(deviation, rel=0.03)
        assert made.mean() == pytest.approx(127.5, abs=0.5)


@pytest.mark.parametrize("value", [0, 1, 77, 254, 255])
def test_motion_blur_leaves_flat_images_alone(value: int) -> None:
    for severity in range(1, 6):
        assert np.array_equal(corrupt(flat(value), "motion_blur", severity, seed=0, index=1), flat(value))


def test_streaks_go_along_their_angle_and_fade() -> None:
    point = np.zeros((SIDE, SIDE), np.float32)
    point[16, 16] = 1
    # Each pixel averages those after it, so a point trails to the left at angle 0 and upwards at 90 degrees.
    level = streak(point, 4, 2, 0)
    assert np.flatnonzero(level.sum(1)).tolist() == [16]
    assert np.flatnonzero(level.sum(0)).tolist() == list(range(8, 17))
    weights = level[16, 8:17]
    assert (np.diff(weights) > 0).all()
    assert weights.sum() == pytest.approx(1)
    assert weights[-2] / weights[-1] == pytest.approx(np.exp(-1 / 8))
    upright = streak(point, 4, 2, 90)
    assert np.flatnonzero(upright.sum(0)).tolist() == [16]
    assert np.allclose(upright[8:17, 16], weights)
    slanted = streak(point, 4, 2, -45)
    assert all(column == 32 - row for row, column in np.argwhere(slanted))


def test_streaks_repeat_the_edge() -> None:
    plane = np.tile(np.arange(SIDE, dtype=np.float32), (SIDE, 1))
    assert streak(plane, 9, 2.5, 0)[0, -1] == pytest.approx(SIDE - 1)
    colours = streak(np.stack([plane] * 3, -1), 9, 2.5, 30)
    assert np.allclose(colours[..., 1], streak(plane, 9, 2.5, 30))


@pytest.mark.parametrize("zoom", [1, 1.25, 1.75, 2.25, 2.5])
def test_centre_zoom_is_linear_interpolation(zoom: float) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    plane = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
    crop = int(np.ceil(SIDE / zoom))
    start = (SIDE - crop) // 2
    large = ndimage.zoom(plane[start : start + crop, start : start + crop], zoom, order=1)
    trim = (len(large) - SIDE) // 2
    assert np.allclose(centre_zoom(plane, zoom), large[trim : trim + SIDE, trim : trim + SIDE], atol=1e-5)


def test_snow_whitens_and_streaks_downwards() -> None:
    made = np.stack([corrupt(flat(60), "snow", 5, seed=0, index=i) for i in range(40)]).astype(float)
    # 0.8 x + 0.2 max(x, 1.5 grey + 0.5) is the darkest a pixel can be.
    assert made.min() == pytest.approx(255 * (0.8 * 60 / 255 + 0.2 * (1.5 * 60 / 255 + 0.5)), abs=1)
    assert np.array_equal(made[..., 0], made[..., 2])
    # Streaks, not white noise: neighbours below each other go together, more than those side by side.
    grey = made[..., 0] - made[..., 0].mean(axis=(1, 2), keepdims=True)
    below = (grey[:, 1:] * grey[:, :-1]).mean() / grey.var()
    beside = (grey[:, :, 1:] * grey[:, :, :-1]).mean() / grey.var()
    assert below > 0.5
    assert below > beside
    # The flakes and the same flakes turned round lie over each other, so on a flat image the picture is symmetric.
    assert np.abs(made - made[:, ::-1, ::-1]).max() <= 1


def test_jpeg_does_not_depend_on_chance(images: list[np.ndarray]) -> None:
    assert np.array_equal(
        corrupt(images[1], "jpeg", 5, seed=0, index=0), corrupt(images[1], "jpeg", 5, seed=9, index=9)
    )


@pytest.mark.parametrize(
    ("name", "severity", "words"),
    [
        ("hail", 5, r"'hail'.*gaussian_noise.*snow"),
        ("snow", 0, "Severity 0.*1, 2, 3, 4 or 5"),
        ("snow", 6, "Severity 6"),
        ("snow", True, "Severity True"),
    ],
)
def test_what_does_not_exist(name: str, severity: int, words: str) -> None:
    with pytest.raises(Error, match=words):
        corrupt(flat(0), name, severity, seed=0, index=0)


@pytest.mark.parametrize("image", [np.zeros((64, 64, 3), np.uint8), np.zeros((32, 32, 3), np.float32), "an image"])
def test_what_is_no_small_image(image: np.ndarray) -> None:
    with pytest.raises(Error, match=r"uint8 arrays \[32, 32, 3\]"):
        corrupt(image, "snow", 5, seed=0, index=0)


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(Error, match="Seed -1"):
        corrupt(flat(0), "snow", 5, seed=-1, index=0)


@pytest.mark.parametrize("name", corruption_names())
def test_fast_enough(name: str, images: list[np.ndarray]) -> None:
    def rate() -> float:
        start = time.perf_counter()
        for i, image in enumerate(images):
            corrupt(image, name, 5, seed=0, index=i)
        return len(images) / (time.perf_counter() - start)

    # The best of a few, as other work may be going on; 500 a second is the goal.
    assert max(rate() for _ in range(5)) > 500
