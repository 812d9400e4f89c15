"""The data sets of one run, opened as its spec says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Error
from ..data.by_name import open_dataset
from ..data.class_names import checked_classes, spoken
from ..data.corruptions.dataset import generated
from ..data.dataset import Dataset
from ..data.names import is_own, parse_name
from ..data.readers.features import ORIGIN as FEATURES
from ..io import data_folder
from ..streams import Domain, Drawn, Source, draw
from .scenario import DomainSpec, DomainsScenario, OrderedScenario
from .spec import RunSpec, code_of, draws_images, image_seed

# Kinds of data sets of which a list of classes takes a part.
_CHOOSES_CLASSES = ("folder", "features")


# A set whose order matters.
IN_ORDER = "ccc"


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
                "give the name of a corrupted set, such as cifar10c.",
                code="scenario-invalid",
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
            raise Error(
                f"'{name}' has no unknown images: extract some with --undesired, or give --undesired-classes.",
                code="dataset-empty",
            )
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
                f"{_some(dataset.classes)} and {self.desired[0].name} has {_some(self.desired[0].classes)}.",
                code="classes-differ",
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
                f"'{dataset.name}' has no class '{missing}' for the undesired side: it has {_some(dataset.classes)}.",
                code="class-unknown",
            )
        unknown = [names[spoken(name)] for name in self._chosen]
        wanted = [label for label in names.values() if label not in unknown] if desired else unknown
        if not wanted:
            raise Error(
                f"All classes of '{dataset.name}' are named as unknown: leave at least one known class.",
                code="run-invalid",
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
                f"The order of '{name}' matters, and the scenario {self.spec.scenario.kind} does not keep it: "
                "use the scenario ordered.",
                code="scenario-invalid",
            )


def _chosen(spec: RunSpec) -> tuple[str, ...] | None:
    """The classes of the desired set that are to be unknown, if there are any."""
    if spec.undesired_classes is None:
        return None
    if spec.undesired not in (None, spec.desired) or isinstance(spec.scenario, DomainsScenario):
        raise Error(
            "`undesired_classes` are classes of the desired set: give no other undesired set, and no list of domains.",
            code="run-invalid",
        )
    names = checked_classes(spec.undesired_classes)
    known = {spoken(name) for name in spec.classes or ()}
    both = next((name for name in names if spoken(name) in known), None)
    if both is not None and parse_name(spec.desired).kind in _CHOOSES_CLASSES:
        raise Error(
            f"The class '{both}' is named for both sides: a class is either known or unknown.", code="run-invalid"
        )
    return names


def _some(names: Sequence[str], most: int = 4) -> str:
    return f"{', '.join(names[:most])}{', ...' if len(names) > most else ''} ({len(names)})"
