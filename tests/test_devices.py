"""Everything that a stream does, on a device that refuses to mix with the processor.

Without a GPU that device is a pretended one, which computes on the processor (`pretended.py`). A person who has one
runs the same tests for real: `pytest -m device --device cuda`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import ostta
from helpers import pretended
from helpers.cases import CLASSES, EARLY, SmallTower, content, images
from helpers.errors import raises
from ostta import Error
from ostta.centre import centre_of
from ostta.config.registry import ALL_IDENTIFIERS as IDENTIFIERS
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.core.devices import device_named, dtype_named
from ostta.live import StreamPool

pytestmark = pytest.mark.device
STEPS = 24
USUAL = {"tpt": "embedded", "tpt_c": "embedded", "palign": "embedded+maple", "palign_c": "embedded+maple"}
CPU = torch.device("cpu")
_loaded: dict[tuple[str, str], Any] = {}


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device under test."""
    name = request.config.getoption("--device")
    return pretended.DEVICE if name == pretended.NAME else device_named(name)


def backbone(kind: str, device: torch.device) -> Any:
    """One backbone a kind and device for all tests; loading is most of their time."""
    if (kind, str(device)) not in _loaded:
        _loaded[kind, str(device)] = _made(kind, device)
    return _loaded[kind, str(device)]


def _made(kind: str, device: torch.device) -> Any:
    if kind != "wrapped":
        return ostta.backbones.load(kind, device=device)
    torch.manual_seed(0)
    tower, text = SmallTower(), torch.randn(len(CLASSES), 16)
    return ostta.backbones.wrap(tower.to(device), text, image_size=32)


def adapter(method: str, device: torch.device, identifier: str = "lda", **options: Any) -> ostta.Adapter:
    options = {"class_scores": True, **EARLY.get(method, {}), **options}
    own = backbone(options.pop("kind", USUAL.get(method, "wrapped")), device)
    return ostta.load(own, CLASSES, method=method, identifier=identifier, **options)


def alike(found: list[ostta.Prediction], expected: list[ostta.Prediction]) -> None:
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert (one.label, one.verdict, one.adapted, one.reason) == (
            other.label, other.verdict, other.adapted, other.reason,
        ), number  # fmt: skip
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-5)
        assert (one.loss is None) == (other.loss is None)
        assert one.loss is None or one.loss == pytest.approx(other.loss, rel=1e-3, abs=1e-5)


def everything_is_on(one: ostta.Adapter, device: torch.device) -> None:
    """What the method remembers; counts and the identifier's scores live on the processor."""
    state = {name: tensor for name, tensor in one.state.tensors().items() if tensor.numel() > 1 and tensor.dim() > 1}
    assert {tensor.device for tensor in state.values()} <= {device}
    assert one.classifier.device == device


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_there_and_gives_what_it_gives_here(
    method: str, device: torch.device, tmp_path: Path
) -> None:
    here, there = adapter(method, CPU), adapter(method, device)
    expected = [here.step(image) for image in images(STEPS)]
    found = [there.step(image) for image in images(STEPS)]
    alike(found, expected)
    everything_is_on(there, device)
    alike([there.predict(images(1)[0])], [here.predict(images(1)[0])])
    # A state file knows no device.
    there.save(tmp_path / "there.ostta")
    here.save(tmp_path / "here.ostta")
    kind = USUAL.get(method, "wrapped")
    swapped = ostta.Adapter.restore(tmp_path / "there.ostta", backbone(kind, CPU))
    alike([swapped.step(image) for image in images(6)], [here.step(image) for image in images(6)])
    back = ostta.Adapter.restore(tmp_path / "here.ostta", backbone(kind, device))
    everything_is_on(back, device)
    alike([back.step(image) for image in images(6)], [there.step(image) for image in images(6)])
    there.reset()
    assert there.steps == 0


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_every_identifier(identifier: str, device: torch.device) -> None:
    here, there = adapter("rosita", CPU, identifier), adapter("rosita", device, identifier)
    alike([there.step(image) for image in images(STEPS)], [here.step(image) for image in images(STEPS)])


@pytest.mark.parametrize("group", ["prompts+layernorm", "full", "last_block", "lora"])
def test_every_kind_of_group(group: str, device: torch.device) -> None:
    options = {"kind": "embedded", "group": group, "confidence": 0.0, "optimiser": "adamw", "lr": 1e-4}
    here, there = adapter("entropy", CPU, **options), adapter("entropy", device, **options)
    alike([there.step(image) for image in images(6)], [here.step(image) for image in images(6)])


def test_a_pool(device: torch.device) -> None:
    """Streams that share the tower, and one that does not."""
    streams = {
        "a": {"method": "rosita"},
        "b": {"method": "zero_shot"},
        "c": {"method": "unient"},
        "d": {"method": "tda"},
    }
    answers = {}
    for where in (CPU, device):
        pool = StreamPool(backbone("wrapped", where))
        for name, options in streams.items():
            pool.add(name, CLASSES, **options)
        answers[where] = [pool.step(dict.fromkeys(streams, image)) for image in images(STEPS)]
    for name in streams:
        alike([step[name] for step in answers[device]], [step[name] for step in answers[CPU]])


def test_views_and_features_from_the_processor(device: torch.device) -> None:
    here, there = adapter("tda", CPU, features=True), adapter("tda", device)
    views = torch.randn(12, 1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expected = [here.step_views(each) for each in views]
    alike([there.step_views(each) for each in views[:6]], expected[:6])
    alike([there.step_features(p.features or ()) for p in expected[6:]], expected[6:])


def test_token_statistics(device: torch.device) -> None:
    from ostta.backbones.maple import measure_statistics

    views = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expected, _ = measure_statistics(backbone("embedded+maple", CPU), views, 2)
    found, _ = measure_statistics(backbone("embedded+maple", device), views, 2)
    torch.testing.assert_close(found.means.cpu(), expected.means, atol=1e-5, rtol=1e-4)


def test_prior_centre(device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wrapped = ostta.backbones.wrap(SmallTower().to(device), torch.eye(3, 16), image_size=32, centre=torch.zeros(16))
    for one in (backbone("embedded", device), wrapped):
        centre = centre_of(one)
        assert centre is not None
        assert (centre.device, centre.dtype) == (one.device, torch.float32)


def test_a_forgotten_device_is_noticed(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: one tensor that stays on the processor is enough."""
    there = adapter("zero_shot", device)
    monkeypatch.setattr(there.method, "classifier", there.classifier.cpu())
    with pytest.raises(RuntimeError):
        there.step(images(1)[0])


def test_the_weight_hash_does_not_depend_on_the_device(device: torch.device) -> None:
    for kind in ("embedded", "embedded+maple", "wrapped"):
        assert backbone(kind, device).weight_hash == backbone(kind, CPU).weight_hash


# --- names, and half precision on the processor -----------------------------------------------------------------------
def test_names_of_devices_and_types() -> None:
    assert device_named("cpu") == CPU
    assert device_named("auto").type in ("cpu", "cuda", "mps")
    assert dtype_named("bfloat16") is torch.bfloat16
    for wrong, words in (
        ("gpu", "There is no device 'gpu'"),
        ("cuda:99", "'cuda:99' is not available"),
        (7.5, "There is no"),
    ):
        with pytest.raises(Error, match=words):
            device_named(wrong)  # type: ignore[arg-type]
    for wrong in ("float64", "int8", 3, torch.float64):
        with raises("dtype-unknown", match="is none of float32, bfloat16, float16"):
            dtype_named(wrong)  # type: ignore[arg-type]
    with raises("device-missing"):
        ostta.load("embedded", CLASSES, device="cuda:99", method="rosita")
    with raises("device-missing"):
        StreamPool("embedded", device="cuda:99")
    with raises("device-unsupported", match=r"is already in torch\.float32, not in torch\.bfloat16"):
        ostta.load(backbone("embedded", CPU), CLASSES, dtype="bfloat16", method="rosita")


@pytest.fixture(scope="module")
def half() -> Any:
    return {kind: ostta.backbones.load(kind, dtype="bfloat16") for kind in ("embedded", "embedded+maple")}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_over_a_tower_in_half_precision(method: str, half: Any, tmp_path: Path) -> None:
    own = half["embedded+maple" if "palign" in method else "embedded"]
    options = {"tpt": {"views": 4}, "tpt_c": {"views": 4}, "palign": {"views": 4}, "palign_c": {"views": 4}}
    one = ostta.load(own, CLASSES, method=method, **options.get(method, {}))
    found = [one.step(image) for image in images(12)]
    assert all(math.isfinite(prediction.score) for prediction in found)
    exact = ostta.load(backbone(own.id, CPU), CLASSES, method=method, **options.get(method, {}))
    scale = one.method.largest_score
    assert [p.score / scale for p in found[:2]] == pytest.approx(
        [exact.step(i).score / scale for i in images(2)], abs=0.02
    )
    state = {name: tensor for name, tensor in content(one).items() if tensor.is_floating_point()}
    assert {tensor.dtype for tensor in state.values()} <= {torch.float32, torch.float64}
    one.save(tmp_path / "state.ostta")
    assert ostta.Adapter.restore(tmp_path / "state.ostta", backbone(own.id, CPU)).steps == 12
    assert own.weight_hash == backbone(own.id, CPU).weight_hash


def test_a_pool_over_a_tower_in_half_precision(half: Any) -> None:
    pool = StreamPool(half["embedded"])
    pool.add("a", CLASSES, lr=1e-3, method="rosita")
    pool.add("b", CLASSES, method="zero_shot")
    alone = ostta.load(half["embedded"], CLASSES, lr=1e-3, method="rosita")
    for image in images(12):
        found = pool.step({"a": image, "b": image})["a"]
        assert found.score == pytest.approx(alone.step(image).score, abs=0.02)


def test_half_precision_throughout_or_in_places(half: Any) -> None:
    with raises("option-conflict", match="cannot be combined with the backbone"):
        ostta.load(half["embedded"], CLASSES, precision="mixed", method="rosita")
