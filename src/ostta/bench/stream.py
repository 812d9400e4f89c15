"""From the spec of a run to its stream, and back to the images of a finished run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from .. import backbones
from ..backbones.protocol import Backbone
from ..config.registry import Components, find_components
from ..config.resolve import resolve
from ..core.overlay import encode
from ..core.types import Error
from ..data.by_name import open_dataset
from ..data.corruptions import checked, corrupt_pair, frost_source
from ..data.corruptions.dataset import FROST, textures_fingerprint
from ..data.dataset import Dataset
from ..data.names import OWN, parse_name
from ..data.overlap import overlap, overlap_sentence
from ..data.views import Views
from ..io import data_folder
from ..streams import (
    Continual,
    Covered,
    Domain,
    Drawn,
    Fooling,
    Frequent,
    OneClassFirst,
    Ordered,
    Sample,
    Shuffled,
    SingleDomain,
    Smooth,
    SortedClasses,
    Source,
    Stream,
    UnknownFirst,
    fooling_identity,
)
from .result import Result, Side
from .scenario import (
    ContinualScenario,
    CoveredScenario,
    DomainSpec,
    DomainsScenario,
    FoolingScenario,
    FrequentScenario,
    OneClassFirstScenario,
    OrderedScenario,
    ShuffledScenario,
    SmoothScenario,
    SortedScenario,
    UnknownFirstScenario,
)
from .sets import Sets
from .spec import RunSpec, files_of, sets_of


def check_names(spec: RunSpec, code: Mapping[str, Any]) -> Components:
    """Method, score and identifier of `spec`. An Error about the first name, option or value that cannot be.

    `code` has what is behind names of files.
    """
    score = None if spec.score is None else code.get(spec.score, spec.score)
    choice = find_components(code.get(spec.method, spec.method), score, code.get(spec.identifier, spec.identifier))
    resolve(choice, spec.profile, spec.options, {}, guard=spec.guard)
    if spec.backbone not in code:
        backbones.check_name(spec.backbone)
    names = [parse_name(name) for name in sets_of(spec)]
    if any(name.corrupted for name in names):
        checked(spec.corruption, spec.severity)
    return choice


# Scenarios that show other images than those of the sets, or change them.
_NEED_IMAGES = ("smooth", "covered", "fooling")


@dataclass(frozen=True)
class Composed:
    """A stream, the classes of its desired side, both sides as result files describe them, and what to say of them."""

    stream: Stream
    classes: tuple[str, ...]
    desired: Side
    undesired: Side | None
    remarks: tuple[str, ...]

    def known_classes(self, spec: RunSpec) -> tuple[str, ...]:
        return known_classes(spec, self.classes)


def compose(spec: RunSpec, root: Path | None, backbone: Backbone | None = None) -> Composed:
    """The stream that `spec` asks for; of the data sets only names and labels are read.

    The scenario `fooling` alone looks at images, through `backbone`.
    """
    if spec.limit is not None and spec.limit < 1:
        raise Error(f"`limit` must be at least 1, not {spec.limit}.", code="option-invalid")
    named = next((name for name in sets_of(spec) if parse_name(name).kind == "features"), None)
    if named is not None and spec.scenario.kind in _NEED_IMAGES:
        raise Error(
            f"The scenario {spec.scenario.kind} needs images, and '{named}' has features alone.", code="images-missing"
        )
    sets = Sets(spec, root)
    stream = hostile(spec, sets, backbone) if isinstance(spec.scenario, HOSTILE) else _stream(spec, sets)
    remarks = (
        *_remarks(sets.desired),
        *_remarks(sets.undesired),
        *sets.drawn,
        *stream.notes,
        _names_that_meet(sets.desired[0].classes, sets.undesired),
    )
    return Composed(
        stream,
        sets.desired[0].classes,
        _side(sets.desired, stream.desired_count),
        _side(sets.undesired, stream.undesired_count) if sets.undesired else None,
        tuple(remark for remark in remarks if remark),
    )


def known_classes(spec: RunSpec, classes: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the known classes: those of the spec, else the `classes` of the desired side."""
    return classes if spec.undesired_classes else tuple(spec.classes or classes)


def identify(spec: RunSpec, root: Path | None) -> tuple[str, tuple[str, ...]]:
    """Return the identity of the stream that `spec` asks for, and its known classes, without loading a model."""
    if not isinstance(spec.scenario, FoolingScenario):
        composed = compose(spec, root)
        return composed.stream.identity, composed.known_classes(spec)
    sets = Sets(spec, root)
    domain = fooling_candidates(spec, sets)
    identity = fooling_identity(domain, pool=spec.scenario.pool, ratio=spec.ratio, seed=spec.seed)
    return identity, known_classes(spec, sets.desired[0].classes)


def _stream(spec: RunSpec, sets: Sets) -> Stream:
    scenario, ratio, seed = spec.scenario, spec.ratio, spec.seed
    if isinstance(scenario, ContinualScenario):
        return Continual(sets.under_each(scenario.corruptions), ratio=ratio, seed=seed)
    if isinstance(scenario, FrequentScenario):
        return Frequent(sets.under_each(scenario.corruptions), scenario.images, ratio=ratio, seed=seed)
    if isinstance(scenario, DomainsScenario):
        return Continual([sets.domain(domain) for domain in scenario.domains], ratio=ratio, seed=seed)
    if isinstance(scenario, SmoothScenario):
        return _smooth(spec, scenario, sets)
    if isinstance(scenario, ShuffledScenario):
        return _shuffled(spec, scenario, sets)
    domain = sets.domain(DomainSpec(desired=spec.desired))
    if isinstance(scenario, OrderedScenario):
        if spec.draw != "order":
            raise Error(
                f"The scenario ordered shows a set in its own order, so `draw` must be 'order', not {spec.draw!r}.",
                code="scenario-invalid",
            )
        return Ordered(domain, ratio=ratio, seed=seed)
    return SingleDomain(domain.desired, domain.undesired, ratio=ratio, seed=seed)


def _shuffled(spec: RunSpec, scenario: ShuffledScenario, sets: Sets) -> Stream:
    domain, undesired = sets.domain(DomainSpec(desired=spec.desired)), None
    if spec.undesired is not None:
        # Opened for a closed set too: the number of its images takes part in the draw.
        undesired = sets.shown(sets.open_undesired(spec.undesired, spec.corruption, spec.severity), None, desired=False)
    return Shuffled(domain, undesired, scenario.images, ratio=spec.ratio, seed=spec.seed)


def _smooth(spec: RunSpec, scenario: SmoothScenario, sets: Sets) -> Stream:
    """The path is made from clean images: as the desired set, `cifar10c` and `cifar10` mean the same here."""
    for name in scenario.corruptions:
        checked(name, spec.severity)
    root = data_folder(sets.root)
    textures = root / FROST if root is not None and (root / FROST).is_dir() else None
    what = f"pairs of corruptions along a path, total severity {scenario.budget:g}, seed {spec.seed}"
    if "frost" in scenario.corruptions:
        what += f", {frost_source(textures)}"
    desired = replace(sets.clean_desired(what), condition=textures_fingerprint(textures))
    shown = sets.shown(desired, spec.limit, desired=True)
    total = len(shown) if scenario.cells is None else scenario.cells * scenario.speed
    undesired, follows = None, False
    if spec.undesired is not None and spec.ratio > 0:
        unknown = parse_name(spec.undesired)
        follows = unknown.corrupted and scenario.undesired_corruption is None
        undesired = sets.open_undesired(unknown.clean if follows else spec.undesired, spec.corruption, spec.severity)
    return Smooth(
        shown,
        None if undesired is None else sets.shown(undesired, int(total * spec.ratio), desired=False),
        scenario.corruptions,
        partial(corrupt_pair, textures=textures),
        speed=scenario.speed,
        cells=scenario.cells,
        budget=scenario.budget,
        corrupt_undesired=follows,
        ratio=spec.ratio,
        seed=spec.seed,
    )


def _side(datasets: Sequence[Dataset], images: int) -> Side:
    """One side of the stream; what several of its sets have in common comes once."""
    return Side(
        name=" + ".join(_distinct(dataset.name for dataset in datasets)),
        images=images,
        classes=len(datasets[0].classes),
        origin=" + ".join(_distinct(dataset.origin for dataset in datasets)),
        note="; ".join(_distinct(dataset.note for dataset in datasets)),
    )


def _remarks(datasets: Sequence[Dataset]) -> list[str]:
    """The notes on each set of one side; of many on one set, the first."""
    remarks = []
    for name in _distinct(dataset.name for dataset in datasets):
        notes = _distinct(dataset.note for dataset in datasets if dataset.name == name)
        more = f", and {len(notes) - 1} notes like it in the result file" if len(notes) > 1 else ""
        remarks += [f"{name}: {notes[0]}{more}."] if notes else []
    return remarks


def _names_that_meet(desired: Sequence[str], undesired: Sequence[Dataset]) -> str:
    """A sentence about class names that both sides have, as far as the undesired side has any."""
    names = [name for dataset in undesired if _has_names(dataset) for name in dataset.classes]
    return overlap_sentence(overlap(desired, _distinct(names)))


def _has_names(dataset: Dataset) -> bool:
    """A person's own set may have numbers, or the name of its folder, in the place of class names."""
    name = parse_name(dataset.name)
    if name.kind in ("known", "sample"):
        return True
    if name.kind == "features":
        return False
    numbers = all(each.isdigit() for each in dataset.classes)
    return not numbers and dataset.classes != (Path(name.base).expanduser().name,)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))


HOSTILE = (UnknownFirstScenario, OneClassFirstScenario, SortedScenario, CoveredScenario, FoolingScenario)


# Pixels a side of images that are made here, and how many images are encoded at once.
SIDE, BATCH = 32, 32


def hostile(spec: RunSpec, sets: Sets, backbone: Backbone | None) -> Stream:
    """The stream of one of the scenarios `HOSTILE`."""
    scenario, ratio, seed = spec.scenario, spec.ratio, spec.seed
    wanted = DomainSpec(desired=spec.desired)
    if not isinstance(scenario, SortedScenario | OneClassFirstScenario) and (spec.undesired is None or ratio <= 0):
        raise Error(
            f"The scenario {scenario.kind} needs unknown images: name a data set of them, and a ratio above 0.",
            code="scenario-invalid",
        )
    if isinstance(scenario, UnknownFirstScenario):
        return UnknownFirst(sets.domain(wanted, scenario.images), scenario.images, ratio=ratio, seed=seed)
    if isinstance(scenario, FoolingScenario):
        if backbone is None:
            raise Error(
                "The scenario fooling selects images with the model of the run, and no model is given here.",
                code="backbone-missing",
            )
        domain = fooling_candidates(spec, sets)
        asked = _FrozenCosine(backbone, spec.classes or sets.desired[0].classes)
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


class _FrozenCosine:
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


@dataclass(frozen=True)
class SeenImages:
    """What stood at each place of a stream. `uncorrupted` is the set that corrupted images were made from, where it is known."""

    stream: Stream
    classes: tuple[str, ...]
    uncorrupted: Dataset | None = None

    def image(self, step: int) -> Image.Image:
        """The image as it was shown, from 0 on."""
        return self._sample(step).image

    def before_corruption(self, step: int) -> Image.Image | None:
        """The same without its corruption; None for undesired images, and for images that are not corrupted."""
        sample = self._sample(step)
        if self.uncorrupted is None or sample.label < 0 or sample.source == self.uncorrupted.name:
            return None
        return self.uncorrupted.image(sample.index)

    def _sample(self, step: int) -> Sample:
        return next(iter(self.stream.starting_at(step)))


def uncorrupted(desired: str, root: Path | None) -> Dataset | None:
    """The clean set of a corrupted one, where it can be opened."""
    name = parse_name(desired)
    try:
        return open_dataset(name.clean, root) if name.corrupted else None
    except Error:
        return None


def seen_images(result: Result, root: Path | None) -> SeenImages:
    """Of a finished run whose sets are named by the person who asks; an Error where the data are not what they were, or would have
    to be fetched. Where a result file alone names them, `compare.stream_images` asks first.
    """
    spec = result.spec
    away = next((name for name in sets_of(spec) if parse_name(name).kind == "hub"), None)
    if away is not None:
        raise Error(f"The images of '{away}' are on the hub, and pages download nothing.", code="images-missing")
    if any(parse_name(name).kind == "features" for name in sets_of(spec)):
        raise Error("This stream has features alone, so there are no images to show.", code="images-missing")
    if isinstance(spec.scenario, FoolingScenario):
        raise Error(
            "The images of the scenario fooling depend on its model, which pages do not load.", code="images-missing"
        )
    composed = compose(spec, root)
    stream = composed.stream
    if stream.hash != result.stream.hash or result.stream.identity not in (None, stream.identity):
        raise Error(
            f"The data of {spec.desired} and {spec.undesired} are no longer what this run saw.", code="stream-changed"
        )
    return SeenImages(stream, composed.known_classes(spec))


def stream_images(result: Result, root: Path | None, opened: Collection[str] = ()) -> SeenImages:
    """What ships and what is in `root` is read; a path or code that the result file names only if it is in `opened`."""
    spec = result.spec
    own = [*files_of(spec), *(name for name in sets_of(spec) if parse_name(name).kind in OWN)]
    closed = next((name for name in own if name not in opened), None)
    if closed is not None:
        raise Error(
            f"Only the result file names {closed!r}: `--open {closed}` allows it to be read, if you trust it.",
            code="consent-missing",
        )
    return seen_images(result, root)
