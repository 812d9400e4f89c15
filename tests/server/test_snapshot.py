"""Snapshots: what is stored once, what is exact, and how large they are."""

from __future__ import annotations

import random
import zlib
from functools import cache

import pytest
import torch
from torch.nn.functional import normalize

import ostta
from helpers.cases import adapter, images
from helpers.errors import raises
from ostta import Error
from ostta.server.sessions.build import restored
from ostta.server.sessions.snapshot import MAGIC, compact, pack, unpack
from ostta.server.settings import Limits

WIDTH, CLASSES = 512, 10
# Bytes of the state file of such a session in version 0.2.0.
BEFORE = 4_311_640


@cache
def texts() -> torch.Tensor:
    return normalize(torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(0)), dim=-1)


def features(number: int) -> torch.Tensor:
    """Three of four images are near a class, so that the guard stays calm and keeps its snapshots."""
    noise = torch.randn(WIDTH, generator=torch.Generator().manual_seed(number)) / WIDTH**0.5
    return noise + (0.35 * texts()[number % CLASSES] if number % 4 != 3 else 0)


def wide(steps: int) -> ostta.Adapter:
    backbone = ostta.backbones.wrap(None, texts(), image_size=224)
    made = ostta.load(backbone, [f"class {number}" for number in range(CLASSES)], guard=True)
    for number in range(steps):
        made.step_features(features(number))
    return made


def test_a_session_with_wide_features_is_small_and_continues_exactly() -> None:
    """At the worst moment, right before the guard replaces its oldest snapshot."""
    before = wide(1279)
    copy = before.copy_state()
    snapshot = pack(compact(copy).to_bytes())
    assert len(snapshot) <= 0.3 * BEFORE
    assert len(snapshot) <= 0.3 * len(copy.to_bytes())
    after = restored(unpack(snapshot), before.backbone, Limits())
    rolled_back = [restored(state, before.backbone, Limits()) for state in (copy.to_bytes(), unpack(snapshot))]
    for number in range(2000, 2040):
        one, two = before.step_features(features(number)), after.step_features(features(number))
        assert (one.score, one.label, one.probability) == (two.score, two.label, two.probability)
    # Only what the guard goes back to is rounded.
    for each in rolled_back:
        each.roll_back()
    for number in range(2000, 2040):
        one, two = (each.step_features(features(number)) for each in rolled_back)
        assert one.score == pytest.approx(two.score, rel=1e-3, abs=1e-3)
        assert (one.label, one.known) == (two.label, two.known)


@pytest.mark.parametrize("method", ["zero_shot", "rosita", "tda", "dpe"])
def test_a_packed_state_is_the_same_file(method: str) -> None:
    made = adapter(method, guard=True, snapshot_every=2)
    for image in images(9):
        made.step(image)
    state = made.copy_state().to_bytes()
    assert unpack(pack(state)) == state
    rounded = compact(made.copy_state()).to_bytes()
    assert unpack(pack(rounded)) == rounded


def test_values_that_half_precision_does_not_have_stay_exact() -> None:
    odd = torch.tensor([1e30, -1e-30, float("inf"), float("nan"), -0.0, 0.1, 65536.0, 1.0] * 16).repeat(3, 1)
    made = adapter("zero_shot").copy_state()
    made.tensors["odd"], made.tensors["whole"] = odd, torch.arange(300).reshape(2, 150)
    from safetensors.torch import save

    state = save(made.tensors, {"ostta": "é"})
    assert unpack(pack(state)) == state


def test_a_damaged_snapshot_is_noticed() -> None:
    snapshot = bytearray(pack(adapter("zero_shot").copy_state().to_bytes()))
    snapshot[len(snapshot) // 2] ^= 1
    with raises("snapshot-damaged"):
        unpack(bytes(snapshot))


def test_a_damaged_snapshot_with_a_valid_checksum_is_an_error() -> None:
    body, chance = pack(adapter("rosita").copy_state().to_bytes())[len(MAGIC) + 4 :], random.Random(0)
    codes: list[str] = []
    for _ in range(150):
        damaged = bytearray(body)
        for _ in range(3):
            damaged[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        damaged = damaged[: chance.choice((len(body), chance.randrange(len(body))))]
        try:
            unpack(MAGIC + zlib.crc32(damaged).to_bytes(4, "little") + damaged)
        except Error as problem:
            codes.append(problem.code)
    assert len(codes) > 75
    assert set(codes) == {"snapshot-damaged"}
