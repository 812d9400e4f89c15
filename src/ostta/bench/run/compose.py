"""From a run's spec to its stream: the data sets are opened here, and every mistake about them comes out here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...backbones.protocol import Backbone
from ...core.types import Error
from ...data.by_name import open_dataset
from ...data.class_names import checked_classes, spoken
from ...data.corruptions import checked, corrupt_pair, frost_source
from ...data.dataset import Dataset
from ...data.features import ORIGIN as FEATURES
from ...data.generated import FROST, generated, textures_fingerprint
from ...data.names import is_own, parse_name
from ...data.overlap import overlap, overlap_sentence
from ...io import data_folder
from ...streams import (
    Continual,
    Domain,
    Drawn,
    Frequent,
    Ordered,
    Shuffled,
    SingleDomain,
    Smooth,
    Source,
    Stream,
    draw,
    fooling_identity,
)
from ..own_code import code_of, sets_of
from ..result import Side
from ..scenario import (
    ContinualScenario,
    DomainSpec,
    DomainsScenario,
    FoolingScenario,
    FrequentScenario,
    OrderedScenario,
    ShuffledScenario,
    SmoothScenario,
)
from ..spec import RunSpec, draws_images, image_seed
from .hostile import HOSTILE, fooling_candidates, hostile

# Kinds of data sets of which a list of classes takes a part.
_CHOOSES_CLASSES = ("folder", "features")
# Scenarios that show other images than those of the sets, or change them.
_NEED_IMAGES = ("smooth", "covered", "fooling")
# A set whose order matters.
IN_ORDER = "ccc"


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
        raise Error(f"`limit` is at least 1, not {spec.limit}.")
    named = next((name for name in sets_of(spec) if parse_name(name).kind == "features"), None)
    if named is not None and spec.scenario.kind in _NEED_IMAGES:
        raise Error(f"The scenario {spec.scenario.kind} needs images, and '{named}' has features alone.")
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
                f"The scenario ordered shows a set in its own order, so `draw` must be 'order', not {spec.draw!r}."
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


class Sets:
    """Opens the data sets of one run and remembers which there were."""

    def __init__(self, spec: RunSpec, root: Path | None) -> None:
        self.spec, self.root, self._code = spec, root, code_of(spec)
        self.draws = draws_images(spec)
        # Where images are drawn, or classes chosen, it is out of the whole set.
        self._first = None if self.draws or spec.undesired_classes is not None else spec.limit
        self.drawn: list[str] = []
        self.desired: list[Dataset] = []
        self.undesired: list[Dataset] = []
        self._clean: dict[tuple[object, ...], Dataset] = {}
        self._chosen = _chosen(spec)

    def under_each(self, corruptions: Sequence[str]) -> list[Domain]:
        """The run's desired set under one corruption after another."""
        name, kind = self.spec.desired, self.spec.scenario.kind
        if not parse_name(name).corrupted:
            raise Error(
                f"The scenario {kind} changes the corruption, but '{name}' has none: "
                "give the name of a corrupted set, such as cifar10c."
            )
        return [self.domain(DomainSpec(desired=name, corruption=each, name=each)) for each in corruptions]

    def domain(self, wanted: DomainSpec, more: int = 0) -> Domain:
        """One domain; what `wanted` leaves open is as the run's spec says. `more` undesired images than the ratio asks for."""
        spec, parsed = self.spec, parse_name(wanted.desired)
        corruption = spec.corruption if wanted.corruption is None else wanted.corruption
        severity = spec.severity if wanted.severity is None else wanted.severity
        desired = self._open_desired(wanted.desired, corruption, severity)
        undesired, name = None, spec.undesired if wanted.undesired is None else wanted.undesired
        options: dict[str, Any] = {"corruption": corruption, "severity": severity} if parsed.corrupted else {}
        if name is not None and spec.ratio > 0:
            undesired = self.open_undesired(name, corruption, severity)
            if parse_name(name).corrupted:
                options |= {"undesired_corruption": spec.scenario.undesired_corruption or corruption}
        title = f"{wanted.desired} {corruption} {severity}" if parsed.corrupted else wanted.desired
        known = self.shown(desired, spec.limit, desired=True)
        unknown = (
            None if undesired is None else self.shown(undesired, int(len(known) * spec.ratio) + more, desired=False)
        )
        return Domain(wanted.name or title, known, unknown, options)

    def shown(self, dataset: Dataset, wanted: int | None, *, desired: bool) -> Source:
        """The images of an opened set that the stream has; `wanted` is their number, None for all of them."""
        source: Source = dataset
        if self.spec.undesired_classes is not None:
            source = Drawn(dataset, np.flatnonzero(dataset.labels >= 0))
        if wanted is None or wanted >= len(source):
            if self.draws and desired:
                self._say(
                    f"{dataset.name}: all {len(source):,} images are shown, so that a seed draws their order only."
                )
            return source
        if self.draws:
            how = f"drawn by seed {image_seed(self.spec)}, as many of each class as there can be"
            side = "" if self._chosen is None else f", {'desired' if desired else 'undesired'} classes"
            self._say(f"{dataset.name}{side}: {wanted:,} of {len(source):,} images, {how}.")
            return draw(source, wanted, image_seed(self.spec), desired=desired)
        return Drawn(source.whole, source.numbers[:wanted]) if desired and isinstance(source, Drawn) else source

    def open_undesired(self, name: str, corruption: str, severity: int) -> Dataset:
        """An undesired set; a corrupted one is corrupted as the desired images are, or as the scenario says (D25)."""
        corruption = self.spec.scenario.undesired_corruption or corruption
        known = next((dataset for dataset in self.undesired if dataset.name == name), None)
        if known is not None and not parse_name(name).corrupted:
            return known
        how = {"named": False} if self._chosen is None else self._how_desired()
        dataset = self._of_side(self._open(name, corruption, severity, how), desired=False)
        if dataset.origin == FEATURES and not len(dataset):
            raise Error(f"'{name}' has no unknown images: extract some with --undesired, or give --undesired-classes.")
        self.undesired.append(dataset)
        return dataset

    def clean_desired(self, what: str) -> Dataset:
        """The run's desired set without a corruption of its own; `what` becomes of it is noted."""
        name = parse_name(self.spec.desired)
        self._check_order(self.spec.desired)
        clean = open_dataset(name.clean, self.root, **self._how_desired(), code=self._code)
        clean = self._of_side(clean, desired=True)
        note = f"made here from {clean.name}: {what}; not the official files"
        named = replace(clean, name=self.spec.desired, origin="generated", note=note)
        self.desired.append(named)
        return named

    def _open_desired(self, name: str, corruption: str, severity: int) -> Dataset:
        self._check_order(name)
        dataset = self._of_side(self._open(name, corruption, severity, self._how_desired()), desired=True)
        self._say_if_classes_are_missing(dataset)
        if self.desired and dataset.classes != self.desired[0].classes:
            raise Error(
                f"All domains must have the same classes in the same order, but {dataset.name} has "
                f"{_some(dataset.classes)} and {self.desired[0].name} has {_some(self.desired[0].classes)}."
            )
        self.desired.append(dataset)
        return dataset

    def _open(self, name: str, corruption: str, severity: int, how: dict[str, Any]) -> Dataset:
        """As `open_dataset`, but corruptions that are made here share one clean set, whose bytes are in memory once."""
        seed = image_seed(self.spec)
        how = {**how, "code": self._code}
        dataset = open_dataset(name, self.root, corruption=corruption, severity=severity, seed=seed, **how)
        if dataset.origin != "generated":
            return dataset
        clean_name = parse_name(name).clean
        # By all that it is opened with: both sides may name one set, and ask for other parts of it.
        classes = how.get("classes")
        asked = (clean_name, how.get("limit"), how["named"], None if classes is None else tuple(classes))
        clean = self._clean.get(asked)
        if clean is None:
            clean = self._clean[asked] = open_dataset(clean_name, self.root, **how)
        return generated(name, clean, corruption, severity, seed, data_folder(self.root))

    def _how_desired(self) -> dict[str, Any]:
        """What the desired set is opened with; the undesired side too, where its classes are some of the same set."""
        classes = self.spec.classes
        if classes is not None and self._chosen is not None and parse_name(self.spec.desired).kind in _CHOOSES_CLASSES:
            # There, a list of classes chooses folders or rows, and unknown ones are wanted beside the known.
            classes = [*classes, *self._chosen]
        return {"limit": self._first, "classes": classes, "named": True}

    def _of_side(self, dataset: Dataset, *, desired: bool) -> Dataset:
        """Where unknown classes were chosen: the set with the classes of one side; other images have the label -1."""
        if self._chosen is None:
            return dataset
        names = {spoken(name): label for label, name in enumerate(dataset.classes)}
        missing = next((name for name in self._chosen if spoken(name) not in names), None)
        if missing is not None:
            raise Error(
                f"'{dataset.name}' has no class '{missing}' for the undesired side: it has {_some(dataset.classes)}."
            )
        unknown = [names[spoken(name)] for name in self._chosen]
        wanted = [label for label in names.values() if label not in unknown] if desired else unknown
        if not wanted:
            raise Error(
                f"All classes of '{dataset.name}' are to be undesired: leave at least one for the desired side."
            )
        of_label = np.full(len(dataset.classes), -1, np.int64)
        of_label[wanted] = np.arange(len(wanted))
        return replace(
            dataset, classes=tuple(dataset.classes[label] for label in wanted), labels=of_label[dataset.labels]
        )

    def _say_if_classes_are_missing(self, dataset: Dataset) -> None:
        """Under a limit, the first images of a person's own set may be of few of its classes."""
        there = len(np.unique(dataset.labels[dataset.labels >= 0]))
        if self._first is not None and is_own(dataset.name) and there < len(dataset.classes):
            self._say(
                f"{dataset.name}: the first {len(dataset):,} images are of {there:,} of its {len(dataset.classes):,} classes; "
                "--draw images takes some of each."
            )

    def _say(self, sentence: str) -> None:
        self.drawn = list(dict.fromkeys([*self.drawn, sentence]))

    def _check_order(self, name: str) -> None:
        if parse_name(name).base == IN_ORDER and not isinstance(self.spec.scenario, OrderedScenario):
            raise Error(
                f"The order of '{name}' is its point, and {self.spec.scenario.kind} would lose it: "
                "use the scenario ordered."
            )


def _chosen(spec: RunSpec) -> tuple[str, ...] | None:
    """The classes of the desired set that are to be unknown, if there are any."""
    if spec.undesired_classes is None:
        return None
    if spec.undesired not in (None, spec.desired) or isinstance(spec.scenario, DomainsScenario):
        raise Error(
            "`undesired_classes` are classes of the desired set, so that there is no other undesired set beside them, and no list "
            "of domains."
        )
    names = checked_classes(spec.undesired_classes)
    known = {spoken(name) for name in spec.classes or ()}
    both = next((name for name in names if spoken(name) in known), None)
    if both is not None and parse_name(spec.desired).kind in _CHOOSES_CLASSES:
        raise Error(f"The class '{both}' is named for both sides: a class is either desired or undesired.")
    return names


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


def _some(names: Sequence[str], most: int = 4) -> str:
    return f"{', '.join(names[:most])}{', ...' if len(names) > most else ''} ({len(names)})"
