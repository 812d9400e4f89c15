"""TDA's caches against its formula written out, with a full row of classes beside every entry."""

from __future__ import annotations

import math

import pytest
import torch

import ostta
from helpers.cases import class_scores
from ostta.core.losses import unit

CLASSES, WIDTH = 40, 24


class Reference:
    """The formula at the top of `methods/tda.py`, entry by entry."""

    def __init__(self, text: torch.Tensor, scale: float, low: float, high: float) -> None:
        self.text, self.scale, self.low, self.high = text, scale, low, high
        self.positive: dict[int, list[tuple[float, torch.Tensor]]] = {}
        self.negative: dict[int, list[tuple[float, torch.Tensor, torch.Tensor]]] = {}

    def logits(self, f: torch.Tensor) -> torch.Tensor:
        frozen = self.scale * self.text @ f
        p, label = frozen.softmax(0), int(frozen.argmax())
        entropy = float(-(p * frozen.log_softmax(0)).sum()) / math.log2(CLASSES)
        self._enter(self.positive.setdefault(label, []), (entropy, f), 3)
        if 0.2 < entropy < 1.0:
            self._enter(self.negative.setdefault(label, []), (entropy, f, (p > self.low) & (p < self.high)), 2)
        final = frozen.clone()
        for own, entries in self.positive.items():
            for _, key in entries:
                final[own] += math.exp(-8 * (1 - float(f @ key)))
        for entries in self.negative.values():
            for _, key, mask in entries:
                final -= 0.117 * math.exp(-(1 - float(f @ key))) * mask
        return final

    @staticmethod
    def _enter(entries: list, entry: tuple, depth: int) -> None:
        if len(entries) < depth:
            entries.append(entry)
        elif entry[0] < max(other[0] for other in entries):
            entries[max(range(depth), key=lambda number: entries[number][0])] = entry


@pytest.mark.parametrize("window", [(0.03, 1.0), (0.0, 1.0), (0.2, 0.5)])
def test_final_logits_are_those_of_the_formula(window: tuple[float, float]) -> None:
    chance = torch.Generator().manual_seed(0)
    text = unit(torch.randn(CLASSES, WIDTH, generator=chance))
    tower = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((2, 4)), torch.nn.Flatten())
    model = ostta.backbones.wrap(tower, text, image_size=8, logit_scale=15)
    options = {"mask_window": window, "class_scores": True}
    one = ostta.load(model, [f"class {number}" for number in range(CLASSES)], method="tda", **options)
    reference, spoken = Reference(text, model.logit_scale, *window), 0
    for _ in range(200):
        # Near a class, so that classes come again and their caches fill.
        near = text[torch.randint(6, (1,), generator=chance)[0]] + 0.25 * torch.randn(WIDTH, generator=chance)
        view = near.view(1, 3, 2, 4).repeat_interleave(4, 2).repeat_interleave(2, 3)
        found = one.step_views(view)
        wanted = reference.logits(unit(near))
        torch.testing.assert_close(class_scores(found), wanted, atol=2e-4, rtol=0)
        spoken += any(mask.any() for entries in reference.negative.values() for _, _, mask in entries)
    assert max(map(len, reference.positive.values())) == 3
    assert spoken


@pytest.mark.parametrize("method", ["tda", "dpe"])
def test_scaled_cache_weights_keep_their_proportion_to_the_text(method: str) -> None:
    """At any temperature the final logits are those of 100, times the temperature over 100.

    Published weights are not.
    """
    chance = torch.Generator().manual_seed(0)
    text, features = (unit(torch.randn(count, WIDTH, generator=chance)) for count in (CLASSES, 40))
    # Whatever is stored is stored first come, first served, so that entropies, which do depend on the temperature,
    # decide nothing.
    options = {"tda": {"shots": 40, "negative_shots": 0}, "dpe": {"shots": 40, "lr": 1e-12, "confident": -1.0}}[method]

    def logits(scale: float, weights: str) -> torch.Tensor:
        none = ostta.backbones.wrap(None, text, logit_scale=scale)
        names = [f"class {number}" for number in range(CLASSES)]
        one = ostta.load(none, names, method=method, cache_weights=weights, class_scores=True, **options)
        return torch.stack([class_scores(one.step_features(row)) for row in features])

    usual = logits(100.0, "published")
    assert torch.equal(logits(100.0, "scaled"), usual)
    torch.testing.assert_close(logits(12.5, "scaled"), usual / 8, atol=1e-4, rtol=0)
    assert not torch.allclose(logits(12.5, "published"), usual / 8, atol=0.05)
