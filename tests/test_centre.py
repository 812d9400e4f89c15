"""Prior centres: the mean unit feature of images that ship, or the one that a backbone was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import ostta
from ostta.backbones.preprocessing import clip_preprocessing
from ostta.centre import centre_of
from ostta.core.losses import unit
from ostta.data import open_dataset
from ostta.data.views import canonical
from ostta.scores import Max


class Tower(nn.Module):
    """Returns the mean colour of each image, and records the number of images in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(pixels))
        return pixels.mean((2, 3))


def small(size: int = 8, weight_hash: str = "a") -> Any:
    return SimpleNamespace(
        vision=Tower(), preprocessing=clip_preprocessing(size), feature_width=3, weight_hash=weight_hash,
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ostta" / "centres"


@pytest.mark.parametrize(("size", "names"), [(64, ["cifar10"]), (65, ["photos", "photos_unknown"])])
def test_a_tower_encodes_the_images_that_ship(size: int, names: list[str]) -> None:
    given = small(size)
    sets = [open_dataset(f"sample:{name}", limit=200) for name in names]
    views = [canonical(each.image(number), given.preprocessing) for each in sets for number in range(len(each))]
    assert len(views) == 200
    with torch.inference_mode():
        centre = centre_of(given)
    assert centre is not None
    assert not centre.is_inference()
    torch.testing.assert_close(centre, unit(torch.stack(views).mean((2, 3))).mean(0))


def test_images_are_encoded_once(cache: Path) -> None:
    first, second, other, damaged = small(), small(), small(weight_hash="b"), small()
    centre = centre_of(first)
    assert centre_of(first) is centre
    assert sum(first.vision.calls) == 200
    assert torch.equal(centre_of(second), centre)
    assert not second.vision.calls
    centre_of(other)
    assert other.vision.calls
    files = list(cache.iterdir())
    assert len(files) == 2
    for content in (b"", files[0].read_bytes()[:-4]):
        for file in files:
            file.write_bytes(content)
        assert torch.equal(centre_of(small()), centre)
    assert torch.equal(centre_of(damaged), centre)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert centre_of(small()) is not None


def test_only_a_score_that_asks_has_images_encoded() -> None:
    class Asking(Max):
        def __init__(self, options: Any, setting: ostta.scores.Setting) -> None:
            super().__init__(options, setting)
            self.centre = setting.centre

    def encoded() -> list[int]:
        return [count for count in counts if count > 1]

    counts: list[int] = []
    backbone = ostta.backbones.load("embedded")
    backbone.vision.register_forward_hook(lambda module, given, output: counts.append(len(output)))
    score: Any = ostta.load(backbone, ["cat", "dog"], "zero_shot", score=Asking, identifier="lda").score
    assert not encoded()
    assert score.centre().shape == (backbone.feature_width,)
    assert sum(encoded()) == 200
    wrapped = ostta.backbones.wrap(None, torch.eye(2), centre=[0.25, 0.5])
    score = ostta.load(wrapped, ["cat", "dog"], "zero_shot", score=Asking, identifier="lda").score
    assert score.centre().tolist() == [0.25, 0.5]


def test_a_wrapped_backbone_has_the_given_centre_only() -> None:
    tower, text = nn.Flatten(), torch.eye(3, 192)
    without = ostta.backbones.wrap(tower, text, image_size=8)
    assert centre_of(without) is None
    one, two = (ostta.backbones.wrap(tower, text, image_size=8, centre=torch.full((192,), x)) for x in (0.0, 0.1))
    assert len({without.weight_hash, one.weight_hash, two.weight_hash}) == 3
    # The width of a function's embeddings is not known before its first call.
    late = ostta.backbones.wrap(None, lambda names: torch.eye(len(names), 2), centre=[1, 0])
    assert centre_of(late).tolist() == [1, 0]
