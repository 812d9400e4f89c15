"""From the spec of a run to its data sets and its stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from .. import backbones, streams
from ..backbones.protocol import Backbone
from ..config.registry import Components, find_components
from ..config.resolve import resolve
from ..core.overlay import encode
from ..core.text import first_few
from ..core.types import Error
from ..data.by_name import open_dataset
from ..data.class_names import checked_classes, spoken
from ..data.corruptions import checked, corrupt_pair, frost_source
from ..data.corruptions.dataset import FROST, generated, textures_fingerprint
from ..data.dataset import Dataset
from ..data.names import is_own, parse_name
from ..data.overlap import overlap, overlap_sentence
from ..data.readers.features import ORIGIN
from ..data.views import Views
from ..io import data_folder
from ..streams import Domain, Drawn, Source, Stream
from .result import Side
from .spec import (
    DomainSpec,
    FoolingScenario,
    RunSpec,
    SmoothScenario,
    code_of,
    draws_images,
    image_seed,
    parts_of,
    sets_of,
)

# Scenarios that show other images than those of the data sets, or change them.
_NEED_IMAGES = ("smooth", "covered", "fooling")
_NEED_UNKNOWN = ("unknown_first", "covered", "fooling")
# Kinds of data sets in which a list of classes selects a part.
_SELECTS_CLASSES = ("folder", "features")
# A data set whose order matters.
_IN_ORDER = "ccc"
# Side of generated images in pixels, and the number of images in one batch of the image tower.
SIDE, BATCH = 32, 32


def check_names(spec: RunSpec, code: Mapping[str, Any]) -> Components:
    """Return method, score and identifier of `spec`; an Error about the first invalid name, option or value.

    `code` maps the names of files to their objects.
    """
    components = find_components(*parts_of(spec, code))
    resolve(components, spec.profile, spec.options, {}, guard=spec.guard)
    if spec.backbone not in code:
        backbones.check_name(spec.backbone)
    if any(parse_name(name).corrupted for name in sets_of(spec)):
        checked(spec.corruption, spec.severity)
    return components


@dataclass(frozen=True)
class Composed:
    """A stream, its known classes, both sides as result files describe them, and remarks about the data."""

    stream: Stream
    classes: tuple[str, ...]
    desired: Side
    undesired: Side | None
    remarks: tuple[str, ...]


def compose(spec: RunSpec, root: Path | None, backbone: Backbone | None = None) -> Composed:
    """Return the stream of `spec`. Only names and labels of the data sets are read.

    The scenario `fooling` also reads images and encodes them with `backbone`.
    """
    if spec.limit is not None and spec.limit < 1:
        raise Error(f"`limit` must be at least 1, not {spec.limit}.", code="option-invalid")
    named = next((name for name in sets_of(spec) if parse_name(name).kind == "features"), None)
    if named is not None and spec.scenario.kind in _NEED_IMAGES:
        raise Error(
            f"The scenario {spec.scenario.kind} needs images, but '{named}' has only features.", code="images-missing"
        )
    sets = Sets(spec, root)
    stream = _stream(spec, sets, backbone)
    classes = sets.desired[0].classes
    names = [name for dataset in sets.undesired if _has_class_names(dataset) for name in dataset.classes]
    remarks = (
        *_remarks(sets.desired),
        *_remarks(sets.undesired),
        *sets.remarks,
        *stream.notes,
        overlap_sentence(overlap(classes, _distinct(names))),
    )
    return Composed(
        stream,
        _known_classes(spec, classes),
        _side(sets.desired, stream.desired_count),
        _side(sets.undesired, stream.undesired_count) if sets.undesired else None,
        tuple(remark for remark in remarks if remark),
    )


def identify(spec: RunSpec, root: Path | None) -> tuple[str, tuple[str, ...]]:
    """Return the identity of the stream of `spec` and its known classes, without loading a model."""
    if spec.scenario.kind != "fooling":
        composed = compose(spec, root)
        return composed.stream.identity, composed.classes
    sets = Sets(spec, root)
    domain = _fooling_candidates(spec, spec.scenario, sets)
    identity = streams.fooling_identity(domain, pool=spec.scenario.pool, ratio=spec.ratio, seed=spec.seed)
    return identity, _known_classes(spec, sets.desired[0].classes)


def _known_classes(spec: RunSpec, classes: tuple[str, ...]) -> tuple[str, ...]:
    return classes if spec.undesired_classes else tuple(spec.classes or classes)


def sides_of(stream: Stream) -> Iterator[tuple[int, bool, Source]]:
    """Return the domain, whether the side is known, and the whole data set of each side of a stream."""
    for visit in stream.visits:
        for known, side in ((True, visit.desired), (False, visit.undesired)):
            if side is not None:
                yield visit.domain, known, side.whole if isinstance(side, Drawn) else side


def is_features(source: object) -> TypeGuard[Dataset]:
    """Return whether a data set comes from a feature file."""
    return isinstance(source, Dataset) and source.origin == ORIGIN


# --- streams ----------------------------------------------------------------------------------------------------------
def _stream(spec: RunSpec, sets: Sets, backbone: Backbone | None) -> Stream:
    scenario, ratio, seed = spec.scenario, spec.ratio, spec.seed
    if scenario.kind in _NEED_UNKNOWN and (spec.undesired is None or ratio <= 0):
        raise Error(
            f"The scenario {scenario.kind} needs unknown images: name a data set of them, and a ratio above 0.",
            code="scenario-invalid",
        )
    match scenario.kind:
        case "continual":
            return streams.Continual(sets.under_each(scenario.corruptions), ratio=ratio, seed=seed)
        case "frequent":
            return streams.Frequent(sets.under_each(scenario.corruptions), scenario.images, ratio=ratio, seed=seed)
        case "domains":
            return streams.Continual([sets.domain(domain) for domain in scenario.domains], ratio=ratio, seed=seed)
        case "smooth":
            return _smooth(spec, scenario, sets)
        case "unknown_first":
            domain = sets.domain(more=scenario.images)
            return streams.UnknownFirst(domain, scenario.images, ratio=ratio, seed=seed)
        case "fooling":
            return _fooling(spec, scenario, sets, backbone)
    domain = sets.domain()
    match scenario.kind:
        case "shuffled":
            undesired = None
            if spec.undesired is not None:
                # Opened for a closed set too: the number of its images is part of the draw.
                dataset = sets.open_undesired(spec.undesired, spec.corruption, spec.severity)
                undesired = sets.shown(dataset, None, desired=False)
            return _arranged(spec, streams.Shuffled(domain, undesired, scenario.images, ratio=ratio, seed=seed))
        case "ordered":
            if spec.draw != "order":
                raise Error(
                    f"The scenario ordered shows a set in its own order, so `draw` must be 'order', not {spec.draw!r}.",
                    code="scenario-invalid",
                )
            return streams.Ordered(domain, ratio=ratio, seed=seed)
        case "one_class_first":
            whole, usual = domain.desired, np.arange(len(domain.desired))
            if isinstance(domain.desired, Drawn):
                whole, usual = domain.desired.whole, domain.desired.numbers
            every = Domain(domain.name, whole, domain.undesired, domain.options)
            return streams.OneClassFirst(every, scenario.images, usual, ratio=ratio, seed=seed)
        case "covered":
            covers = [_cover("black", scenario.images, seed), _cover("noise", scenario.images, seed)]
            return streams.Covered(domain, covers, ratio=ratio, seed=seed)
        case "sorted":
            return streams.SortedClasses(domain, ratio=ratio, seed=seed)
        case _:
            return _arranged(spec, streams.SingleDomain(domain.desired, domain.undesired, ratio=ratio, seed=seed))


def _arranged(spec: RunSpec, stream: streams.SingleDomain | streams.Shuffled) -> Stream:
    if spec.arrangement == "shuffled":
        return stream
    return streams.Arranged(stream, spec.arrangement, spec.burst_lengths, seed=spec.seed)


def _smooth(spec: RunSpec, scenario: SmoothScenario, sets: Sets) -> Stream:
    """Compose a path of corruptions of clean images. As the desired set, `cifar10c` and `cifar10` are the same here."""
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
    return streams.Smooth(
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


def _fooling(spec: RunSpec, scenario: FoolingScenario, sets: Sets, backbone: Backbone | None) -> Stream:
    if backbone is None:
        raise Error(
            "The scenario fooling selects images with the model of the run, and no model is given here.",
            code="backbone-missing",
        )
    domain = _fooling_candidates(spec, scenario, sets)
    with torch.no_grad():
        classifier = backbone.classifier(tuple(spec.classes or sets.desired[0].classes))
    scores = partial(_highest_cosines, backbone, classifier)
    return streams.Fooling(domain, scores, pool=scenario.pool, ratio=spec.ratio, seed=spec.seed)


def _fooling_candidates(spec: RunSpec, scenario: FoolingScenario, sets: Sets) -> Domain:
    """Return the domain with all undesired images among which the scenario `fooling` selects."""
    usual = sets.domain()
    return sets.domain(more=int(len(usual.desired) * spec.ratio) * (scenario.pool - 1))


def _highest_cosines(backbone: Backbone, classifier: torch.Tensor, source: Source) -> NDArray[np.float64]:
    """Return the largest cosine of each image to the classes, under the frozen model."""
    found = [np.zeros(0)]
    for start in range(0, len(source), BATCH):
        numbers = range(start, min(start + BATCH, len(source)))
        pixels = [
            Views.of_image(source.image(number), backbone.preprocessing, 0, 0, classifier.device).canonical
            for number in numbers
        ]
        with torch.no_grad():
            features = encode(backbone.vision, torch.cat(pixels))
        found.append((features @ classifier.T).max(dim=1).values.double().cpu().numpy())
    return np.concatenate(found)


def _cover(what: str, count: int, seed: int) -> Dataset:
    def image(number: int) -> Image.Image:
        if what == "black":
            return Image.new("RGB", (SIDE, SIDE))
        generator = np.random.Generator(np.random.PCG64([seed, number]))
        return Image.fromarray(generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))

    labels = np.zeros(count, np.int64)
    return Dataset(what, (what,), labels, "generated", f"{what} images made here, seed {seed}", image)


# --- descriptions -----------------------------------------------------------------------------------------------------
def _side(datasets: Sequence[Dataset], images: int) -> Side:
    """Describe one side of the stream; values that several data sets share are listed once."""
    return Side(
        name=" + ".join(_distinct(dataset.name for dataset in datasets)),
        images=images,
        classes=len(datasets[0].classes),
        origin=" + ".join(_distinct(dataset.origin for dataset in datasets)),
        note="; ".join(_distinct(dataset.note for dataset in datasets)),
    )


def _remarks(datasets: Sequence[Dataset]) -> list[str]:
    """Return the first note on each data set of one side, and how many notes follow."""
    remarks = []
    for name in _distinct(dataset.name for dataset in datasets):
        notes = _distinct(dataset.note for dataset in datasets if dataset.name == name)
        more = f", and {len(notes) - 1} notes like it in the result file" if len(notes) > 1 else ""
        remarks += [f"{name}: {notes[0]}{more}."] if notes else []
    return remarks


def _has_class_names(dataset: Dataset) -> bool:
    """Return False for a user's own set whose classes are numbers or the name of its folder."""
    name = parse_name(dataset.name)
    if name.kind in ("known", "sample"):
        return True
    if name.kind == "features":
        return False
    numbers = all(each.isdigit() for each in dataset.classes)
    return not numbers and dataset.classes != (Path(name.base).expanduser().name,)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))


# --- data sets --------------------------------------------------------------------------------------------------------
class Sets:
    """Opens the data sets of one run.

    desired, undesired: the data sets opened so far. remarks: sentences about how their images are selected.
    """

    def __init__(self, spec: RunSpec, root: Path | None) -> None:
        self.spec, self.root, self._code = spec, root, code_of(spec)
        self.draws = draws_images(spec)
        # Images are drawn, and classes are selected, from the whole set.
        self._first = None if self.draws or spec.undesired_classes is not None else spec.limit
        self.remarks: list[str] = []
        self.desired: list[Dataset] = []
        self.undesired: list[Dataset] = []
        self._clean: dict[tuple[object, ...], Dataset] = {}
        self._unknown_classes = _unknown_classes(spec)

    def under_each(self, corruptions: Sequence[str]) -> list[Domain]:
        """Return the desired set under one corruption after another."""
        name, kind = self.spec.desired, self.spec.scenario.kind
        if not parse_name(name).corrupted:
            raise Error(
                f"The scenario {kind} changes the corruption, but '{name}' has none: "
                "give the name of a corrupted set, such as cifar10c.",
                code="scenario-invalid",
            )
        return [self.domain(DomainSpec(desired=name, corruption=each, name=each)) for each in corruptions]

    def domain(self, domain: DomainSpec | None = None, more: int = 0) -> Domain:
        """Open one domain; None stands for the only domain of the run.

        `more`: number of undesired images beyond those of the ratio.
        """
        spec, domain = self.spec, domain or DomainSpec(desired=self.spec.desired)
        corrupted = parse_name(domain.desired).corrupted
        corruption = spec.corruption if domain.corruption is None else domain.corruption
        severity = spec.severity if domain.severity is None else domain.severity
        desired = self._open_desired(domain.desired, corruption, severity)
        undesired, name = None, spec.undesired if domain.undesired is None else domain.undesired
        options: dict[str, Any] = {"corruption": corruption, "severity": severity} if corrupted else {}
        if name is not None and spec.ratio > 0:
            undesired = self.open_undesired(name, corruption, severity)
            if parse_name(name).corrupted:
                options |= {"undesired_corruption": spec.scenario.undesired_corruption or corruption}
        title = f"{domain.desired} {corruption} {severity}" if corrupted else domain.desired
        known = self.shown(desired, spec.limit, desired=True)
        count = int(len(known) * spec.ratio) + more
        unknown = None if undesired is None else self.shown(undesired, count, desired=False)
        return Domain(domain.name or title, known, unknown, options)

    def shown(self, dataset: Dataset, count: int | None, *, desired: bool) -> Source:
        """Return the images of an opened set that the stream shows: `count` of them, or all if it is None."""
        source: Source = dataset
        if self.spec.undesired_classes is not None:
            source = Drawn(dataset, np.flatnonzero(dataset.labels >= 0))
        if count is None or count >= len(source):
            if self.draws and desired:
                self._remark(
                    f"{dataset.name}: all {len(source):,} images are shown, so that a seed draws their order only."
                )
            return source
        if self.draws:
            seed = image_seed(self.spec)
            side = "" if self._unknown_classes is None else f", {'desired' if desired else 'undesired'} classes"
            self._remark(
                f"{dataset.name}{side}: {count:,} of {len(source):,} images, drawn by seed {seed}, as many of each "
                "class as there can be."
            )
            return streams.draw(source, count, seed, desired=desired)
        return Drawn(source.whole, source.numbers[:count]) if desired and isinstance(source, Drawn) else source

    def open_undesired(self, name: str, corruption: str, severity: int) -> Dataset:
        """Open an undesired set. A corrupted set has the corruption of the scenario or of the desired images (D25)."""
        corruption = self.spec.scenario.undesired_corruption or corruption
        opened = next((dataset for dataset in self.undesired if dataset.name == name), None)
        if opened is not None and not parse_name(name).corrupted:
            return opened
        options = {"named": False} if self._unknown_classes is None else self._desired_options()
        dataset = self._of_side(self._open(name, corruption, severity, options), desired=False)
        if is_features(dataset) and not len(dataset):
            raise Error(
                f"'{name}' has no unknown images: extract some with --undesired, or give --undesired-classes.",
                code="dataset-empty",
            )
        self.undesired.append(dataset)
        return dataset

    def clean_desired(self, what: str) -> Dataset:
        """Open the desired set without corruption. `what` describes, for its note, the images that are made from it."""
        self._check_order(self.spec.desired)
        clean_name = parse_name(self.spec.desired).clean
        clean = open_dataset(clean_name, self.root, **self._desired_options(), code=self._code)
        clean = self._of_side(clean, desired=True)
        note = f"made here from {clean.name}: {what}; not the official files"
        named = replace(clean, name=self.spec.desired, origin="generated", note=note)
        self.desired.append(named)
        return named

    def _open_desired(self, name: str, corruption: str, severity: int) -> Dataset:
        self._check_order(name)
        dataset = self._of_side(self._open(name, corruption, severity, self._desired_options()), desired=True)
        # With a limit, the first images of a user's own set may cover only some of its classes.
        covered = len(np.unique(dataset.labels[dataset.labels >= 0]))
        if self._first is not None and is_own(dataset.name) and covered < len(dataset.classes):
            self._remark(
                f"{dataset.name}: the first {len(dataset):,} images are of {covered:,} of its {len(dataset.classes):,} "
                "classes; --draw images takes some of each."
            )
        if self.desired and dataset.classes != self.desired[0].classes:
            raise Error(
                f"All domains must have the same classes in the same order, but {dataset.name} has "
                f"{first_few(dataset.classes, 'class', 'classes')} and {self.desired[0].name} has "
                f"{first_few(self.desired[0].classes, 'class', 'classes')}.",
                code="classes-differ",
            )
        self.desired.append(dataset)
        return dataset

    def _open(self, name: str, corruption: str, severity: int, options: dict[str, Any]) -> Dataset:
        """Open a data set. Generated corruptions share one clean set, so that its bytes are in memory once."""
        seed = image_seed(self.spec)
        options = {**options, "code": self._code}
        dataset = open_dataset(name, self.root, corruption=corruption, severity=severity, seed=seed, **options)
        if dataset.origin != "generated":
            return dataset
        clean_name = parse_name(name).clean
        # Both sides may name the same set and request different parts of it.
        classes = options.get("classes")
        key = (clean_name, options.get("limit"), options["named"], None if classes is None else tuple(classes))
        if key not in self._clean:
            self._clean[key] = open_dataset(clean_name, self.root, **options)
        return generated(name, self._clean[key], corruption, severity, seed, data_folder(self.root))

    def _desired_options(self) -> dict[str, Any]:
        """Return the options with which the desired set is opened, and the undesired side if it is the same set."""
        classes = self.spec.classes
        if classes is not None and self._unknown_classes is not None and _selects_classes(self.spec):
            # The list of classes selects folders or rows, so it must contain the unknown classes too.
            classes = [*classes, *self._unknown_classes]
        return {"limit": self._first, "classes": classes, "named": True}

    def _of_side(self, dataset: Dataset, *, desired: bool) -> Dataset:
        """Return the set with the classes of one side if unknown classes are given; other images have the label -1."""
        if self._unknown_classes is None:
            return dataset
        names = {spoken(name): label for label, name in enumerate(dataset.classes)}
        missing = next((name for name in self._unknown_classes if spoken(name) not in names), None)
        if missing is not None:
            raise Error(
                f"'{dataset.name}' has no class '{missing}' for the undesired side: "
                f"it has {first_few(dataset.classes, 'class', 'classes')}.",
                code="class-unknown",
            )
        unknown = [names[spoken(name)] for name in self._unknown_classes]
        kept = [label for label in names.values() if label not in unknown] if desired else unknown
        if not kept:
            raise Error(
                f"All classes of '{dataset.name}' are named as unknown: leave at least one known class.",
                code="run-invalid",
            )
        of_label = np.full(len(dataset.classes), -1, np.int64)
        of_label[kept] = np.arange(len(kept))
        classes = tuple(dataset.classes[label] for label in kept)
        return replace(dataset, classes=classes, labels=of_label[dataset.labels])

    def _remark(self, sentence: str) -> None:
        self.remarks = list(dict.fromkeys([*self.remarks, sentence]))

    def _check_order(self, name: str) -> None:
        if parse_name(name).base == _IN_ORDER and self.spec.scenario.kind != "ordered":
            raise Error(
                f"The order of '{name}' matters, and the scenario {self.spec.scenario.kind} does not keep it: "
                "use the scenario ordered.",
                code="scenario-invalid",
            )


def _selects_classes(spec: RunSpec) -> bool:
    return parse_name(spec.desired).kind in _SELECTS_CLASSES


def _unknown_classes(spec: RunSpec) -> tuple[str, ...] | None:
    """Return the classes of the desired set that are unknown; None if the spec names none."""
    if spec.undesired_classes is None:
        return None
    if spec.undesired not in (None, spec.desired) or spec.scenario.kind == "domains":
        raise Error(
            "`undesired_classes` are classes of the desired set: give no other undesired set, and no list of domains.",
            code="run-invalid",
        )
    names = checked_classes(spec.undesired_classes)
    known = {spoken(name) for name in spec.classes or ()}
    both = next((name for name in names if spoken(name) in known), None)
    if both is not None and _selects_classes(spec):
        raise Error(
            f"The class '{both}' is named for both sides: a class is either known or unknown.", code="run-invalid"
        )
    return names
