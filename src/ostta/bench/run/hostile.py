"""From a run's spec to a hostile stream (streams/hostile.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ...backbones.protocol import Backbone
from ...core.overlay import encode
from ...core.types import Error
from ...data.dataset import Dataset
from ...data.views import Views
from ...streams import Covered, Domain, Drawn, Fooling, OneClassFirst, SortedClasses, Source, Stream, UnknownFirst
from ..scenario import (
    CoveredScenario,
    DomainSpec,
    FoolingScenario,
    OneClassFirstScenario,
    SortedScenario,
    UnknownFirstScenario,
)
from ..spec import RunSpec

if TYPE_CHECKING:
    from .compose import Sets

HOSTILE = (UnknownFirstScenario, OneClassFirstScenario, SortedScenario, CoveredScenario, FoolingScenario)
# Pixels a side of images that are made here, and how many images are encoded at once.
SIDE, BATCH = 32, 32


def hostile(spec: RunSpec, sets: Sets, backbone: Backbone | None) -> Stream:
    """The stream of one of the scenarios `HOSTILE`."""
    scenario, ratio, seed = spec.scenario, spec.ratio, spec.seed
    wanted = DomainSpec(desired=spec.desired)
    if not isinstance(scenario, SortedScenario | OneClassFirstScenario) and (spec.undesired is None or ratio <= 0):
        raise Error(f"The scenario {scenario.kind} is about undesired images: name a set of them, and a ratio above 0.")
    if isinstance(scenario, UnknownFirstScenario):
        return UnknownFirst(sets.domain(wanted, scenario.images), scenario.images, ratio=ratio, seed=seed)
    if isinstance(scenario, FoolingScenario):
        if backbone is None:
            raise Error("Which images fool a model, it must be asked itself: there is none here.")
        domain = fooling_candidates(spec, sets)
        asked = _Asked(backbone, spec.classes or sets.desired[0].classes)
        return Fooling(domain, asked, pool=scenario.pool, ratio=ratio, seed=seed)
    domain = sets.domain(wanted)
    if isinstance(scenario, OneClassFirstScenario):
        whole, usual_ones = domain.desired, np.arange(len(domain.desired))
        if isinstance(domain.desired, Drawn):
            whole, usual_ones = domain.desired.whole, domain.desired.numbers
        every = Domain(domain.name, whole, domain.undesired, domain.options)
        return OneClassFirst(every, scenario.images, usual_ones, ratio=ratio, seed=seed)
    if isinstance(scenario, CoveredScenario):
        covers = [_cover("black", scenario.images, seed), _cover("noise", scenario.images, seed)]
        return Covered(domain, covers, ratio=ratio, seed=seed)
    return SortedClasses(domain, ratio=ratio, seed=seed)


def fooling_candidates(spec: RunSpec, sets: Sets) -> Domain:
    """The domain of the scenario `fooling` with all undesired images that it chooses from."""
    assert isinstance(spec.scenario, FoolingScenario)
    wanted = DomainSpec(desired=spec.desired)
    usual = sets.domain(wanted)
    return sets.domain(wanted, int(len(usual.desired) * spec.ratio) * (spec.scenario.pool - 1))


class _Asked:
    """The largest cosine of each image to the classes, under the frozen model."""

    def __init__(self, backbone: Backbone, classes: tuple[str, ...] | list[str]) -> None:
        self._backbone = backbone
        with torch.no_grad():
            self._classifier = backbone.classifier(tuple(classes))

    def __call__(self, source: Source) -> NDArray[np.float64]:
        found = []
        for start in range(0, len(source), BATCH):
            numbers = range(start, min(start + BATCH, len(source)))
            pixels = [
                Views.of_image(source.image(number), self._backbone.preprocessing, 0, 0, self._classifier.device)
                for number in numbers
            ]
            with torch.no_grad():
                features = encode(self._backbone.vision, torch.cat([views.canonical for views in pixels]))
            found.append((features @ self._classifier.T).max(dim=1).values.double().cpu().numpy())
        return np.concatenate(found) if found else np.zeros(0)


def _cover(what: str, count: int, seed: int) -> Dataset:
    def image(number: int) -> Image.Image:
        if what == "black":
            return Image.new("RGB", (SIDE, SIDE))
        chance = np.random.Generator(np.random.PCG64([seed, number]))
        return Image.fromarray(chance.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))

    labels = np.zeros(count, np.int64)
    return Dataset(what, (what,), labels, "generated", f"{what} images made here, seed {seed}", image)
