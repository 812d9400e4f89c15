"""Every method with every identifier on every kind of backbone keeps the same promises."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ostta
from cases import (
    BACKBONES,
    CASES,
    CLASSES,
    EARLY,
    MAPLE_METHODS,
    PROMPT_METHODS,
    adapter,
    backbone,
    content,
    images,
    same,
    trace,
    usual,
)
from leaks import growth
from ostta import Error
from ostta.methods import METHODS

STEPS = 12
each_case = pytest.mark.parametrize(("method", "identifier", "kind"), CASES)
# What an identifier cannot change about a method is asked of every method with one of them, and of every identifier with one method.
PAIRS = [case for case in CASES if case[1] == "lda" or case[::2] == ("rosita", "wrapped")]
each_pair = pytest.mark.parametrize(("method", "identifier", "kind"), PAIRS)


@each_case
def test_a_stream_is_pure_repeatable_and_survives_a_restart(
    method: str, identifier: str, kind: str, tmp_path: Path
) -> None:
    """Two runs of one stream: one asks for a prediction before every step, the other stops half-way and is restored."""
    one, other = adapter(method, identifier, kind, seed=3), adapter(method, identifier, kind, seed=3)
    first, second = [], []
    for number, image in enumerate(images(STEPS)):
        before = content(one)
        predicted = one.predict(image)
        assert same(before, content(one))
        first.append(one.step(image))
        assert predicted.score == pytest.approx(first[-1].score, abs=1e-5)
        assert (predicted.adapted, predicted.loss) == (False, None)
        second.append(other.step(image))
        if number == STEPS // 2:
            other.save(tmp_path / "state.ostta")
            resolved, other = other.resolved, ostta.Adapter.restore(tmp_path / "state.ostta", backbone(kind))
            assert other.resolved == resolved
    assert trace(first) == trace(second)
    assert same(content(one), content(other))


@each_pair
def test_reset_is_a_fresh_start(method: str, identifier: str, kind: str) -> None:
    one = adapter(method, identifier, kind)
    fresh = content(one)
    expected = trace(one.stream(images(STEPS)))
    one.reset()
    assert same(content(one), fresh)
    assert trace(one.stream(images(STEPS))) == expected


@each_pair
def test_two_adapters_on_one_backbone_never_touch(method: str, identifier: str, kind: str) -> None:
    alone = trace(adapter(method, identifier, kind).stream(images(STEPS)))
    weights = backbone(kind).weight_hash
    parameters = {name: value.clone() for name, value in backbone(kind).vision.state_dict().items()}
    one, other = adapter(method, identifier, kind), adapter(method, identifier, kind, seed=9)
    mixed = []
    for number, image in enumerate(images(STEPS)):
        mixed.append(one.step(image))
        other.step(images(STEPS)[-1 - number])
    assert trace(mixed) == alone
    assert all(value.equal(parameters[name]) for name, value in backbone(kind).vision.state_dict().items())
    assert backbone(kind).weight_hash == weights


@each_pair
def test_bad_images_change_nothing(method: str, identifier: str, kind: str, tmp_path: Path) -> None:
    one = adapter(method, identifier, kind)
    for image in images(12):
        one.step(image)
    before = content(one)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n nothing of the kind")
    views = torch.zeros(2, 3, 32, 32)
    for step, bad in (
        (one.step, broken),
        (one.step, tmp_path / "absent.jpg"),
        (one.step, b""),
        (one.step, np.zeros((4, 4), np.uint8)),
        (one.step_views, views[0]),
        (one.step_views, torch.zeros(64, 3, 16, 16)),
    ):
        with pytest.raises(Error):
            step(bad)
    streamed = list(one.stream([broken]))
    assert streamed[0].label is None
    assert "broken.png" in str(streamed[0].reason)
    spoiled = one.step_views(torch.full((64, 3, 32, 32), float("nan")))
    assert (spoiled.label, spoiled.adapted, spoiled.reason) == (
        None,
        False,
        "the features of this image are not finite",
    )
    assert "NaN" not in spoiled.to_json()
    assert same(before, content(one))


@each_pair
def test_small_large_and_single(method: str, identifier: str, kind: str) -> None:
    one = adapter(method, identifier, kind)
    assert one.step(Image.new("RGB", (1, 1), "red")).index in range(10)
    assert one.step(Image.new("L", (7, 300))).index in range(10)
    if kind != "wrapped":
        alone = ostta.load(backbone(kind), ["cat"], method=method, identifier=identifier, **EARLY.get(method, {}))
        assert {alone.step(image).index for image in images(STEPS)} == {0}


@pytest.mark.parametrize("method", METHODS)
def test_too_few_views_is_said_before_anything_changes(method: str) -> None:
    kind = usual(method)
    one = adapter(method, kind=kind)
    if one.method.views > 1:
        with pytest.raises(Error, match="views"):
            one.step_views(torch.zeros(one.method.views - 1, 3, 32, 32))
        assert one.steps == 0
    many = torch.rand(one.method.views + 3, 3, 32, 32)
    extra, exact = adapter(method, kind=kind), adapter(method, kind=kind)
    assert trace([extra.step_views(many)]) == trace([exact.step_views(many[:-3])])


@pytest.mark.parametrize("method", METHODS)
def test_a_long_stream_keeps_nothing_but_its_banks(method: str) -> None:
    """With the banks full, no step leaves an object, a tensor or a graph behind."""
    # A step that tunes a prompt takes as long as dozens of others.
    kind, (warm, steps) = usual(method), (10, 24) if method in PROMPT_METHODS else (100, 50)
    one = adapter(method, kind=kind, class_scores=False, window=64)
    views = torch.rand(97, one.method.views, 3, 32, 32)
    number = itertools.count()
    found = growth(lambda: one.step_views(views[next(number) % 97]), warm=warm, steps=steps)
    assert not found.leaks(steps), found


@pytest.mark.parametrize("method", PROMPT_METHODS)
def test_a_prompt_without_a_text_tower_is_refused_in_one_sentence(method: str) -> None:
    sentences = {
        True: r"^PromptAlign needs MaPLe prompts in both towers, and wrapped has none: [^.]*\.$",
        False: r"^The backbone wrapped cannot tune prompts: .* of the CLIP family[^.]*\.$",
    }
    with pytest.raises(Error, match=sentences[method in MAPLE_METHODS]):
        adapter(method, kind="wrapped")


def test_options_are_frozen() -> None:
    for method in METHODS.values():
        assert dataclasses.is_dataclass(method.Options)
        assert method.Options.__dataclass_params__.frozen


def test_backbones_are_all_covered() -> None:
    assert {kind for _, _, kind in CASES} == set(BACKBONES)
    assert len(CLASSES) == 10
