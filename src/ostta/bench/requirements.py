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
from ..data.class_names import checked_classes
from ..data.names import parse_name
from ..feature_files import placed_features
from .folder import ResultFolder, RunInputs, class_names_hash
from .run import open_backbone
from .scenario import ContinualScenario, DomainsScenario, FrequentScenario, SmoothScenario
from .spec import RunSpec, changed, code_of, method_key, run_key, sets_of, stream_key
from .stream import check_names, identify


@dataclass(frozen=True)
class Missing:
    """Why some runs cannot be carried out, and their keys. `data`: a data set of the catalogue is absent."""

    reason: str
    runs: frozenset[str]
    data: bool = False


class MissingError(Error):
    """Nothing was started because something is missing. `missing` lists all of it; `total` is the number of runs."""

    def __init__(self, missing: Sequence[Missing], total: int) -> None:
        self.missing, self.total = tuple(missing), total
        self.lost = len(frozenset().union(*(each.runs for each in missing)))
        reasons = " ".join(f"({number}) {each.reason}" for number, each in enumerate(missing, 1))
        super().__init__(f"{self.head} {reasons} {self.way_out}".rstrip(), code="requirements-missing")

    @property
    def head(self) -> str:
        return f"{self.lost} of {self.total} runs cannot be carried out, so nothing was started."

    @property
    def way_out(self) -> str:
        """What can be done without; empty if no run is left."""
        left = self.total - self.lost
        return f"`--keep-going` carries out the other {left}." if left else ""


class Streams:
    """Composes each stream of a grid once, for all runs on it, and keeps its identity."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._found: dict[str, dict[int, tuple[str, str] | Error]] = {}

    def check(self, spec: RunSpec) -> None:
        """Raise an Error if the stream cannot be composed. One seed of a stream stands for all."""
        seeds = self._found.get(_stream(spec))
        _value(next(iter(seeds.values()))) if seeds else self.identity(spec)

    def identity(self, spec: RunSpec) -> tuple[str, str]:
        """Return the identity of the stream, and the hash of its class names; an Error if it cannot be composed."""
        seeds = self._found.setdefault(_stream(spec), {})
        if spec.seed not in seeds:
            try:
                stream, classes = identify(spec, self._root)
                seeds[spec.seed] = stream, class_names_hash(checked_classes(classes))
            except Error as problem:
                seeds[spec.seed] = problem
        return _value(seeds[spec.seed])

    def known_identity(self, spec: RunSpec) -> str | None:
        """Return the identity of the stream if it has been composed already."""
        found = self._found.get(_stream(spec), {}).get(spec.seed)
        return found[0] if isinstance(found, tuple) else None


def _stream(spec: RunSpec) -> str:
    """Return the key of a stream. A data set in a file of code is another one if its file changes."""
    code = {name: spec.plugins[name] for name in sets_of(spec) if name in spec.plugins}
    return f"{stream_key(spec)} {json.dumps(code, sort_keys=True)}"


def _value(found: tuple[str, str] | Error) -> tuple[str, str]:
    if isinstance(found, Error):
        raise found
    return found


class ReusableResults:
    """The results of a folder that need not be computed again: those of the same weights, stream and classes as now."""

    def __init__(self, out: Path, root: Path | None, streams: Streams, *, records: bool = False) -> None:
        self._folder, self._root, self._streams, self._records = ResultFolder(out), root, streams, records
        self._weights: dict[str, str] = {}

    def has(self, spec: RunSpec) -> bool:
        """Return whether the run has such a result. Other processes may write to the folder meanwhile."""
        self._folder.refresh()
        found = self._folder.existing(spec, records=self._records)
        if not found:
            return False
        try:
            inputs = RunInputs(self._weight_hash(spec), *self._streams.identity(spec))
        except Error:
            # The run itself reports the problem.
            return False
        return any(inputs.made(result) for result in found)

    def _weight_hash(self, spec: RunSpec) -> str:
        if spec.backbone not in self._weights:
            on_cpu = changed(spec, device="cpu", dtype="float32")
            self._weights[spec.backbone] = open_backbone(on_cpu, self._root).weight_hash
        return self._weights[spec.backbone]


def missing_for(specs: Sequence[RunSpec], root: Path | None, streams: Streams | None = None) -> list[Missing]:
    """Return everything that is missing for `specs`: names, models and data sets. Each is looked up once.

    A model of the hub is downloaded here. Of the data sets only names and labels are read, as when a run starts.
    """
    streams = Streams(root) if streams is None else streams
    found: dict[str, set[str]] = {}
    known: dict[str, str | None] = {}
    absent: set[str] = set()

    def require(spec: RunSpec, what: str, look: Callable[[], object]) -> bool:
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
        stream, conditions = _stream(spec), f"{spec.corruption} {spec.severity}"
        require(spec, f"names {spec.backbone} {method_key(spec)} {stream}", partial(_require_names, spec))
        require(spec, f"backbone {spec.backbone}", partial(_require_backbone, spec, root))
        sets = [require(spec, f"set {name} {conditions}", partial(_open, spec, name, root)) for name in sets_of(spec)]
        if all(sets):
            require(spec, f"stream {stream}", partial(streams.check, spec))
    return [Missing(reason, frozenset(keys), reason in absent) for reason, keys in found.items()]


def sets_needed(specs: Sequence[RunSpec]) -> list[tuple[str, str]]:
    """Return the data sets that `specs` open, each once, with the corruption under which it is opened.

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
    # A data set without corruptions needs one entry.
    return list(
        {
            (name, corruption if parse_name(name).corrupted else ""): (name, corruption) for name, corruption in needed
        }.values()
    )


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
