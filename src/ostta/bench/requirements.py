"""What the runs of a grid need and is missing, found before the first of them starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import backbones
from ..config.plugins import names_file
from ..core.types import Error
from ..data.by_name import AbsentError, open_dataset
from ..data.names import parse_name
from ..feature_files import placed_features
from .scenario import (
    ContinualScenario,
    DomainsScenario,
    FoolingScenario,
    FrequentScenario,
    SingleScenario,
    SmoothScenario,
)
from .spec import RunSpec, changed, code_of, run_key, sets_of
from .stream import check_names, compose

# What of a spec has nothing to do with which data it opens.
_BESIDE_THE_DATA = {
    "backbone",
    "method",
    "score",
    "identifier",
    "profile",
    "options",
    "seed",
    "guard",
    "device",
    "dtype",
    "ahead",
}


@dataclass(frozen=True)
class Missing:
    """Why some runs cannot be carried out, and which, by their keys. `data`: a data set of the catalogue is absent."""

    reason: str
    runs: frozenset[str]
    data: bool = False


class MissingError(Error):
    """Nothing was started, as something is missing. `missing` has all of it, `total` is how many runs there would be."""

    def __init__(self, missing: Sequence[Missing], total: int) -> None:
        self.missing, self.total = tuple(missing), total
        self.lost = len(frozenset().union(*(each.runs for each in missing)))
        reasons = " ".join(f"({number}) {each.reason}" for number, each in enumerate(missing, 1))
        super().__init__(f"{self.head} {reasons} {self.way_out}".rstrip())

    @property
    def head(self) -> str:
        return f"{self.lost} of {self.total} runs cannot be carried out, so nothing was started."

    @property
    def way_out(self) -> str:
        """Empty where no run is left."""
        left = self.total - self.lost
        return f"`--keep-going` carries out the other {left}." if left else ""


def missing_for(specs: Sequence[RunSpec], root: Path | None) -> list[Missing]:
    """All that is missing for `specs`: names, models and data sets. Each is looked for once; a model of the hub is fetched here.

    Of the data sets only names and labels are read, as when a run starts.
    """
    found: dict[str, set[str]] = {}
    known: dict[str, str | None] = {}
    absent: set[str] = set()

    def ask(spec: RunSpec, what: str, look: Callable[[], object]) -> bool:
        if what not in known:
            problem = _problem(look)
            known[what] = None if problem is None else str(problem)
            if isinstance(problem, AbsentError):
                absent.add(str(problem))
        reason = known[what]
        if reason is not None:
            found.setdefault(reason, set()).add(run_key(spec))
        return reason is None

    for spec in specs:
        ask(spec, f"names {_key(spec, {'seed', 'limit'})}", partial(_require_names, spec))
        ask(spec, f"backbone {spec.backbone}", partial(_require_backbone, spec, root))
        conditions = f"{spec.corruption} {spec.severity}"
        there = [ask(spec, f"set {name} {conditions}", partial(_open, spec, name, root)) for name in sets_of(spec)]
        if all(there):
            ask(spec, f"stream {_key(spec, _BESIDE_THE_DATA)}", partial(_compose, spec, root))
    return [Missing(reason, frozenset(keys), reason in absent) for reason, keys in found.items()]


def sets_needed(specs: Sequence[RunSpec]) -> list[tuple[str, str]]:
    """The data sets that `specs` open, each once, with the corruption it is opened under.

    >>> sets_needed([RunSpec(desired="cifar10c", undesired="mnist:train", corruption="fog")])
    [('cifar10c', 'fog'), ('mnist:train', 'fog')]
    """
    needed: dict[tuple[str, str], None] = {}
    for spec in specs:
        scenario = spec.scenario
        domains = [(spec.desired, spec.undesired, spec.corruption)]
        if isinstance(scenario, ContinualScenario | FrequentScenario):
            domains = [(spec.desired, spec.undesired, each) for each in scenario.corruptions]
        elif isinstance(scenario, SmoothScenario):
            domains = [(parse_name(spec.desired).clean, spec.undesired, spec.corruption)]
        elif isinstance(scenario, DomainsScenario):
            domains = [
                (each.desired, each.undesired or spec.undesired, each.corruption or spec.corruption)
                for each in scenario.domains
            ]
        for desired, undesired, corruption in domains:
            needed[desired, corruption] = None
            if undesired is not None and spec.ratio > 0:
                needed[undesired, scenario.undesired_corruption or corruption] = None
    # Without a corruption, one entry is enough.
    return list(
        {
            (name, corruption if parse_name(name).corrupted else ""): (name, corruption) for name, corruption in needed
        }.values()
    )


def _key(spec: RunSpec, beside: set[str]) -> str:
    return json.dumps(spec.model_dump(mode="json", exclude=beside), sort_keys=True)


def _problem(look: Callable[[], object]) -> Error | None:
    try:
        look()
    except Error as problem:
        return problem
    return None


def _require_names(spec: RunSpec) -> None:
    check_names(spec, code_of(spec))


def _require_backbone(spec: RunSpec, root: Path | None) -> None:
    if not names_file(spec.backbone):
        backbones.require(placed_features(spec.backbone, root))


def _open(spec: RunSpec, name: str, root: Path | None) -> None:
    open_dataset(
        name, root, corruption=spec.corruption, severity=spec.severity, limit=1, named=False, code=code_of(spec)
    )


def _compose(spec: RunSpec, root: Path | None) -> None:
    """What is wrong with the stream although all its data are there."""
    # Which images fool a model it would have to be asked; here it is only about whether they are there.
    fooling = isinstance(spec.scenario, FoolingScenario)
    compose(changed(spec, scenario=SingleScenario()) if fooling else spec, root)
