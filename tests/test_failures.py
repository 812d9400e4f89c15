"""What goes wrong inside a step: no trace of it is left, and the stream goes on."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ostta
from helpers.cases import CLASSES, SmallTower, adapter, backbone, content, images, learned, same, trace
from helpers.errors import raises
from ostta import Verdict
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.core.overlay import encode
from ostta.live import StreamPool

TEXT = torch.randn(len(CLASSES), 16, generator=torch.Generator().manual_seed(0))


# --- half precision ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("tpt_c", {"views": 4}),
        ("rosita", {"group": "prompts", "losses": "re"}),
        ("rosita", {"group": "prompts+layernorm"}),
        ("entropy", {"group": "prompts", "confidence": 0.0}),
        ("entropy", {"group": "full", "confidence": 0.0}),
    ],
)
def test_mixed_precision_lasts_longer_than_one_step(method: str, options: dict[str, Any]) -> None:
    one = adapter(method, kind="embedded", precision="mixed", **options)
    views = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        found = learned(one, views, Verdict.RELIABLE_DESIRED)
        assert found.adapted
        assert math.isfinite(found.score)
    assert one.state.overlay.classifier.dtype == torch.float32


@pytest.mark.parametrize("method", ["zero_shot", "tda", "dpe", "rosita"])
def test_the_guard_compares_features_in_half_precision(method: str) -> None:
    one = adapter(method, "field", "embedded", score="field", precision="mixed", guard=True)
    found = [one.step(image) for image in images(30)]
    assert all(math.isfinite(prediction.score) for prediction in found)
    assert len(one.guard.tensors()["shadow/scores"]) > 0


# --- the caller's mode ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("method", ["zero_shot", "rosita", "tda", "dpe", "tpt_c"])
def test_a_step_is_the_same_in_every_mode_of_the_caller(method: str, mode: Any, tmp_path: Path) -> None:
    kind = "embedded" if method == "tpt_c" else "wrapped"

    def run(mode: Any) -> tuple[list[Any], dict[str, torch.Tensor]]:
        with mode():
            if kind == "wrapped":
                torch.manual_seed(0)
                own = ostta.backbones.wrap(SmallTower(), torch.randn(len(CLASSES), 16), image_size=32)
            else:
                own = ostta.backbones.load(kind)
            one = ostta.load(own, CLASSES, method=method, **({"views": 4} if method == "tpt_c" else {}))
            views = torch.randn(30, 4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
            found = [one.step_views(each) for each in views] + [one.predict(images(1)[0])]
            one.save(tmp_path / "state.ostta")
            one = ostta.Adapter.restore(tmp_path / "state.ostta", own)
            return trace(found + [one.step(image) for image in images(20)]), content(one)

    (expected, state), (found, other) = run(nullcontext), run(mode)
    assert found == expected
    assert same(state, other)


def test_a_pool_steps_inside_inference_mode() -> None:
    with torch.inference_mode():
        pool = StreamPool(backbone("wrapped"))
        pool.add("a", CLASSES, method="rosita")
        found = [pool.step({"a": image})["a"] for image in images(30)]
    assert any(prediction.adapted for prediction in found)


# --- an answer that fails ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("problem", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("method", ["rosita", "unient", "prototypes", "entropy"])
def test_an_answer_that_fails_leaves_no_trace(
    method: str, problem: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"entropy": {"confidence": 0.0}, "prototypes": {"wait": 0}}.get(method, {})
    one = adapter(method, **options)
    for image in images(30):
        one.step(image)
    views = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = content(one)

    def fails_without_graph(vision: nn.Module, pixels: torch.Tensor, overlay: Any = None) -> torch.Tensor:
        if not torch.is_grad_enabled():
            raise problem
        return encode(vision, pixels, overlay)

    with monkeypatch.context() as patched:
        patched.setattr("ostta.step.encode", fails_without_graph)
        with pytest.raises(problem):
            learned(one, views, Verdict.RELIABLE_DESIRED)
    one.memory.identifier = adapter(method).identifier
    one.memory.identifier.load(
        {name.removeprefix("identifier/"): t for name, t in before.items() if "identifier" in name}
    )
    assert same(before, content(one))
    assert learned(one, views, Verdict.RELIABLE_DESIRED).adapted


def test_an_answer_that_fails_in_a_pool_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = StreamPool(backbone("wrapped"))
    one = pool.add("a", CLASSES, method="unient")
    pool.step({"a": images(1)[0]})
    before = content(one)

    def fails(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr("ostta.live.shared_step._conclude", fails)
    future = pool.submit("a", images(2)[1])
    pool.run_once()
    with pytest.raises(MemoryError):
        future.result(0)
    assert same(before, content(one))


# --- steps that lead nowhere ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lr", [1e30, 1e10])
@pytest.mark.parametrize("method", ["rosita", "unient", "prototypes", "entropy"])
@pytest.mark.parametrize("pooled", [False, True])
def test_a_rate_that_is_far_too_high_never_ends_the_stream(
    method: str, lr: float, pooled: bool, tmp_path: Path
) -> None:
    options = {"entropy": {"confidence": 0.0}, "prototypes": {"wait": 0}}.get(method, {})
    one = ostta.load(backbone("embedded"), CLASSES, method=method, lr=lr, **options)
    pool = StreamPool(backbone("embedded"))
    if pooled:
        pool.add("a", one)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number, image in enumerate(images(60)):
            found = pool.step({"a": image})["a"] if pooled else one.step(image)
            assert math.isfinite(found.score), (number, found)
        one.save(tmp_path / "state.ostta")
    restored = ostta.Adapter.restore(tmp_path / "state.ostta", backbone("embedded"))
    assert math.isfinite(restored.predict(images(1)[0]).score)
    refused = [found for found in said if "taken back" in str(found.message)]
    assert all("learning rate is too high" in str(found.message) for found in refused)


def test_a_dead_step_is_given_up_and_said_and_predict_changes_nothing() -> None:
    one = adapter("unient", kind="embedded")
    one.step(images(1)[0])
    alive = one.state.overlay
    dead = alive.moved(torch.full_like(value, 1e25) for value in alive.parameters())
    views = torch.randn(1, 3, 32, 32)
    expected = one.predict_views(views).score
    one.memory.previous = ostta.core.optimisers.StepResult(alive, one.state.optimiser, 0.0)
    one.state.overlay = dead
    before = content(one)
    assert one.predict_views(views).score == expected
    assert same(before, content(one))
    with pytest.warns(UserWarning, match="The update of step 1 made the features of images not finite and was undone"):
        found = one.step_views(views)
    assert found.score == pytest.approx(expected, abs=1e-6)


class Scaled(nn.Module):
    """A tower whose features are multiplied by what the image's first pixel says."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = SmallTower()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x) * x[:, :1, 0, 0].exp()


@pytest.mark.parametrize("method", ["zero_shot", "rosita", "tda", "dpe"])
@pytest.mark.parametrize(
    ("level", "reason"), [(-200.0, "length zero or overflow"), (60.0, "length zero or overflow"), (200.0, "not finite")]
)
def test_features_without_a_direction_are_said_and_change_nothing(method: str, level: float, reason: str) -> None:
    one = ostta.load(ostta.backbones.wrap(Scaled(), TEXT, image_size=32), CLASSES, method=method)
    views = torch.randn(2, 3, 32, 32)
    views[:, 0, 0, 0] = 0
    one.step_views(views)
    before = content(one)
    views[:, 0, 0, 0] = level
    for found in (one.predict_views(views), one.step_views(views)):
        assert (found.label, found.verdict, found.adapted) == (None, None, False)
        assert reason in str(found.reason)
    assert same(before, content(one))


# --- towers of other precisions ---------------------------------------------------------------------------------------
class Cast(nn.Module):
    """A tower whose features come in some other form."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.tower, self.change = SmallTower(), change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self.tower(x))


@pytest.mark.parametrize("method", [method for method in METHODS if "tpt" not in method and "palign" not in method])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_towers_of_any_precision_work(method: str, dtype: torch.dtype) -> None:
    own = ostta.backbones.wrap(Cast(lambda features: features.to(dtype)), TEXT, image_size=32)
    one = ostta.load(own, CLASSES, method=method)
    assert all(math.isfinite(one.step(image).score) for image in images(30))


def test_a_tower_without_gradients_serves_what_trains_nothing() -> None:
    own = ostta.backbones.wrap(Cast(torch.Tensor.detach), TEXT, image_size=32)
    for method in ("zero_shot", "tda", "dpe", "oga", "onzeta"):
        assert ostta.load(own, CLASSES, method=method).step(images(1)[0]).index in range(10)
    for method in ("rosita", "unient", "prototypes", "entropy", "cliptta"):
        with raises("backbone-unsupported", "zero_shot, tda or dpe"):
            ostta.load(own, CLASSES, method=method)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda features: features.long(),
            r"returns \[1, 16\] of type torch\.int64 .* must return finite floating-point numbers",
        ),
        (
            lambda features: features * math.nan,
            r"returns \[1, 16\] of type torch\.float32 .* must return finite floating-point numbers",
        ),
        (lambda features: features[0], r"returns \[16\] .* of shape \[1, 16\]"),
        (lambda features: {"features": features}, "returns a dict"),
    ],
)
def test_a_tower_that_cannot_serve_is_one_sentence(change: Any, words: str) -> None:
    with raises("image-tower-invalid", match=words):
        ostta.backbones.wrap(Cast(change), TEXT, image_size=32)


# --- features alone ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["zero_shot", "tda", "dpe", "oga", "onzeta"])
def test_features_alone_give_the_same_stream(method: str, tmp_path: Path) -> None:
    whole = adapter(method, features=True)
    expected = [whole.step(image) for image in images(30)]
    none = ostta.backbones.wrap(None, whole.classifier)
    one = ostta.load(none, CLASSES, method=method)
    found = [one.step_features([3 * value for value in p.features or ()]) for p in expected[:20]]
    one.save(tmp_path / "state.ostta")
    one = ostta.Adapter.restore(tmp_path / "state.ostta", none)
    found += [one.step_features(torch.tensor(p.features, dtype=torch.float64)) for p in expected[20:]]
    assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-5)
    assert [(p.index, p.verdict) for p in found] == [(p.index, p.verdict) for p in expected]
    before = content(one)
    assert one.predict_features(expected[0].features).index in range(10)
    for bad, words in (([1.0], "shape"), ("no", "type str"), (None, "type NoneType")):
        with raises("features-invalid", match=words):
            one.step_features(bad)  # type: ignore[arg-type]
    assert one.step_features([0.0] * 16).reason
    assert one.step_features([math.nan] * 16).reason == "the features of this image are not finite"
    with raises("image-tower-missing"):
        one.step(images(1)[0])
    assert same(before, content(one))


def test_methods_that_train_refuse_features_alone() -> None:
    with raises("image-needed"):
        adapter("rosita").step_features([0.0] * 16)
    with raises("backbone-unsupported", "no image tower"):
        ostta.load(ostta.backbones.wrap(None, TEXT), CLASSES, method="rosita")
