"""`reset_every`: after so many updates what was trained is as at the start, with nothing left of what it gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ostta
from helpers.cases import CLASSES, EARLY, FixedVerdict, adapter, backbone, content, images, same, trace, usual
from helpers.errors import raises
from ostta import Verdict
from ostta.live import StreamPool

TRAINS = ("rosita", "prototypes", "unient", "entropy", "cliptta", "dpe", "tpt_c", "palign_c")
OPTIONS: dict[str, dict[str, Any]] = {
    "prototypes": {"wait": 0}, "entropy": {"confidence": 0.0, "optimiser": "adamw"}, "cliptta": {"buffer": 2},
    "rosita": {"losses": ("re",)},
}  # fmt: skip


def resetting(method: str, every: int, **options: Any) -> ostta.Adapter:
    """An adapter that is told to accept every image, so that it has updates."""
    own = {**OPTIONS.get(method, {}), **options}
    one = adapter(method, identifier="all", kind=usual(method), reset_every=every, **own)
    if method == "prototypes":  # or its bank stays empty
        one.memory.identifier = FixedVerdict(Verdict.UNRELIABLE_UNDESIRED)  # type: ignore[assignment]
    elif method == "rosita":
        one.memory.identifier = FixedVerdict(Verdict.RELIABLE_DESIRED)  # type: ignore[assignment]
    return one


def trained(one: ostta.Adapter) -> dict[str, torch.Tensor]:
    state = one.state.tensors()
    return {name: state[name] for name in state if name.split("/")[0] in ("overlay", "optimiser", "text")}


@pytest.mark.parametrize("method", TRAINS)
def test_what_was_trained_goes_back_and_the_prediction_says_so(method: str) -> None:
    one = resetting(method, 3)
    start, updates, resets = trained(one), 0, 0
    for image in images(24):
        found = one.step(image)
        updates += found.adapted
        back = found.adapted and updates % 3 == 0
        assert found.diagnostics.get("reset") == (3 if back else None)
        if back:
            resets += 1
            assert same(trained(one), start)
            assert one.memory.updates == 0
    assert resets >= 2
    assert one.steps == 24
    other = resetting(method, 0)
    assert not any("reset" in p.diagnostics for p in other.stream(images(12)))
    assert not same(trained(other), start)


def test_features_and_scores_of_the_trained_model_go_too() -> None:
    one = adapter("rosita", losses=("re",), reset_every=4)
    stream = (one.step(image) for image in images(40))
    assert any("reset" in found.diagnostics for found in stream)  # goes no further than the first
    assert len(one.state.desired) == len(one.state.undesired) == len(one.identifier.bank) == 0
    assert one.steps > 4


def test_what_no_trained_model_gave_stays() -> None:
    """Images of cliptta, features of dpe's frozen tower, and banks beside prompts that leave the image tower alone."""
    one = resetting("cliptta", 2)
    for image in images(4):
        one.step(image)
    assert one.memory.updates == 0
    assert len(one.state.images) == one.state.accepted == 4
    assert one.state.updates == one.state.counted == len(one.state.scores) == 0
    two = resetting("dpe", 2)
    for image in images(2):
        two.step(image)
    assert (two.memory.updates, two.state.evolved) == (0, 0)
    assert bool(two.state.cache.filled.any())
    three = adapter("rosita", kind="embedded", group="prompts", losses=("re",), reset_every=2, lr=1e-4)
    three.memory.identifier = FixedVerdict(Verdict.RELIABLE_DESIRED)  # type: ignore[assignment]
    for image in images(2):
        three.step(image)
    assert three.memory.updates == 0
    assert len(three.state.desired) == 2


@pytest.mark.parametrize("method", ["rosita", "cliptta", "entropy"])
def test_a_restored_stream_resets_when_it_would_have(method: str, tmp_path: Path) -> None:
    options = {"identifier": "lda", "reset_every": 5, **EARLY.get(method, {}), **OPTIONS.get(method, {})}
    whole = adapter(method, **options)
    expected = [(*row, p.diagnostics.get("reset")) for p in whole.stream(images(40)) for row in trace([p])]
    assert any(row[-1] for row in expected)
    one, found = adapter(method, **options), []
    for image in images(40):
        before = content(one)
        one.predict(image)
        assert same(before, content(one))
        prediction = one.step(image)
        found.append((*trace([prediction])[0], prediction.diagnostics.get("reset")))
        one.save(tmp_path / "state.ostta")
        one = ostta.Adapter.restore(tmp_path / "state.ostta", one.backbone)
    assert found == expected
    assert same(content(one), content(whole))
    one.reset()
    assert one.memory.updates == 0


def test_streams_of_a_pool_reset_as_adapters_do() -> None:
    model = backbone("embedded")
    pool, alone = StreamPool(model), {}
    for name, every in (("a", 2), ("b", 3), ("c", 0)):
        options: dict[str, Any] = {"losses": ("re",), "reset_every": every, "lr": 1e-3}
        pool.add(name, CLASSES, method="rosita", **options)
        alone[name] = ostta.load(model, CLASSES, "rosita", **options)
    resets = dict.fromkeys(alone, 0)
    for image in images(40):
        together = pool.step(dict.fromkeys(alone, image))
        for name, one in alone.items():
            expected = one.step(image)
            assert together[name].diagnostics == expected.diagnostics
            assert together[name].score == pytest.approx(expected.score, abs=1e-4)
            resets[name] += "reset" in expected.diagnostics
    assert resets["a"] >= resets["b"] > resets["c"] == 0


def test_a_step_that_fails_is_no_update() -> None:
    one = adapter("unient", reset_every=2, lr=1e37)
    for image in images(4):
        assert not one.step(image).adapted
    assert one.memory.updates == 0


@pytest.mark.parametrize("method", ["zero_shot", "tda", "tpt"])
def test_no_trained_values_to_reset_is_one_sentence(method: str) -> None:
    sentence = f"^{method} keeps no trained values, so `reset_every` has no effect: leave it out[.]$"
    with raises("option-conflict", match=sentence):
        adapter(method, kind=usual(method), reset_every=10)
