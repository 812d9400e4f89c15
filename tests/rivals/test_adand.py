"""AdaND's detector against its published algorithm."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import ostta
from helpers.errors import raises
from ostta import Verdict
from ostta.core.types import Decision, Look, Preprocessing
from ostta.rivals import AdaND, Detector, DetectorOptions
from ostta.scores import Setting


def published(
    features: np.ndarray, cosines: np.ndarray, scale: float, noise: np.ndarray, noise_cosines: np.ndarray, options
):
    """The published loop in torch, image by image, with a noise image after every eighth.

    The values it ranks by, and its flags.
    """
    layer = nn.Linear(features.shape[1], 2).double()
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    adam = torch.optim.Adam(layer.parameters(), lr=options.detector_lr)
    first, second, buffer, values, flags, t = [], [], [], [], [], 0

    def otsu(scores: list[float]) -> float:
        best, found = math.inf, 0.0
        array = np.array(scores[-512:])
        for candidate in np.arange(100) * 0.01:
            low, high = array[array <= candidate], array[array > candidate]
            if len(low) and len(high):
                cost = len(low) * low.var() + len(high) * high.var()
                if cost < best - 1e-12:
                    best, found = cost, candidate
        return found

    def item(f: np.ndarray, z: np.ndarray, synthetic: bool) -> tuple[float, bool]:
        nonlocal t
        doubt = 1 - float(torch.softmax(scale * torch.from_numpy(z).float(), 0).max())
        first.append(doubt)
        unknown = synthetic or doubt > otsu(first)
        output = layer(torch.from_numpy(options.length * f).double())
        buffer.append((output, int(not unknown)))
        del buffer[: -options.detector_batch]
        score = doubt
        flag = doubt > otsu(first)
        if t > options.blind:
            score = float(torch.softmax(output.detach(), 0)[0])
            second.append(score)
            flag = score > otsu(second)
        if t > 0 and t % options.detector_batch == 0:
            adam.zero_grad()
            outputs, labels = torch.stack([each for each, _ in buffer]), torch.tensor([label for _, label in buffer])
            nn.functional.cross_entropy(outputs, labels).backward()
            adam.step()
        t += 1
        return 1 - score, flag

    for number, (f, z) in enumerate(zip(features, cosines, strict=True), start=1):
        value, flag = item(f, z, False)
        values.append(value)
        flags.append(flag)
        if number % 8 == 0:
            place = (number // 8) % len(noise)
            item(noise[place], noise_cosines[place], True)
    return values, flags


def test_the_detector_is_the_published_one() -> None:
    """If the batch size divides the stream, the buffer holds only images since the last step: both see the same."""
    rng = np.random.default_rng(0)
    classifier = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(5, 12))).float(), dim=1)

    def encode(images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1)
        return nn.functional.normalize(flat[:, :12] + 0.3 * flat[:, 12:24], dim=1)

    setting = Setting(classifier, 10.0, 1.0, Preprocessing(4, (0.5,) * 3, (0.2,) * 3), encode)
    options = DetectorOptions(detector_batch=16, blind=64, detector_lr=0.01)
    one = Detector(options, setting)
    features = nn.functional.normalize(
        classifier[torch.arange(200) % 5] * torch.from_numpy(rng.uniform(0, 1, (200, 1)).round()).float()
        + torch.from_numpy(rng.normal(0, 0.3, (200, 12))).float(),
        dim=1,
    )
    noise = one._noise[:, :-1]
    expected, flags = published(
        features.double().numpy(),
        (features @ classifier.T).numpy(),
        10.0,
        noise,
        noise.astype(np.float32) @ classifier.numpy().T,
        options,
    )
    for number, row in enumerate(features):
        look = Look(None, row, row @ classifier.T, row @ classifier.T, None)
        scored = one.value(look)
        assert scored.value == pytest.approx(expected[number], abs=1e-6), number
        decision = AdaND().peek(scored.value, scored.evidence)
        assert decision.desired != flags[number], number
        one.remember(look, scored, Decision(Verdict.UNRELIABLE_DESIRED, None, None, None))


def test_the_detector_needs_a_tower() -> None:
    without = ostta.backbones.wrap(None, torch.randn(3, 8))
    with raises("image-tower-missing", match="use `noise_every=0`"):
        ostta.load(without, ["a", "b", "c"], "zero_shot", score="detector")
    assert ostta.load(without, ["a", "b", "c"], "zero_shot", score="detector", noise_every=0)
