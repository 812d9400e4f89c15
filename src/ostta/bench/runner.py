"""Grids of runs: requirements, progress, and carrying out each run once."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import backbones
from ..config.plugins import names_file
from ..config.registry import require_known
from ..core.types import Error
from ..data.by_name import AbsentError, open_dataset
from ..data.class_names import checked_classes
from ..data.names import parse_name
from ..feature_files import PREFIX, placed_features
from ..io import make_folder
from .checkpoint import EVERY
from .folder import ResultFolder, RunInputs, RunLock, class_names_hash, remove_failure, try_lock, write_failure
from .log import check_log
from .machine import cores, threads_from_environment
from .run import open_backbone, prepare
from .spec import (
    RunSpec,
    changed,
    code_of,
    method_key,
    run_key,
    sets_of,
    sources_of,
    stream_key,
)
from .stream import check_names, identify
from .suite import Cell, Suite, expand
from .workers import Ending, Job, Outcome, Step, inside, local

LOCAL, RAY, INSIDE = ENGINES = ("local", "ray", "inside")


# Default limit, because each worker has a model in memory.
MOST_WORKERS = 4


@dataclass(frozen=True)
class Summary:
    """How the runs of a grid ended. `elsewhere`: runs that another process is carrying out."""

    done: int
    skipped: int
    failed: tuple[Ending, ...]
    elsewhere: tuple[RunSpec, ...]
    seconds: float


def plan(
    suite: Suite,
    seeds: Sequence[int] | None = None,
    limit: int | None = None,
    only: Mapping[str, Collection[str]] | None = None,
    shard: tuple[int, int] = (1, 1),
) -> list[RunSpec]:
    """Return the runs of a suite in its order, each once, or those of shard i of n.

    Shards are disjoint, cover all runs, and differ by at most one in size. The assignment depends only on the fields
    that the suite sets, so machines with the same suite and arguments agree on it, wherever their folders are.
    """
    number, count = shard
    if not 1 <= number <= count:
        raise Error(f"A shard is i/n with i from 1 to n, not {number}/{count}.", code="option-invalid")
    cells: dict[str, Cell] = {}
    for cell in expand(suite, seeds, limit, only):
        cells.setdefault(run_key(cell.spec), cell)
    # The hash mixes the runs of all axes, in the same order on every machine.
    order = sorted(cells, key=lambda key: hashlib.sha256(cells[key].request.encode()).hexdigest())
    mine = set(order[number - 1 :: count])
    return [cell.spec for key, cell in cells.items() if key in mine]


def run_grid(
    specs: Sequence[RunSpec],
    root: Path | None,
    out: Path,
    *,
    workers: int | None = None,
    threads: int | None = None,
    engine: str = LOCAL,
    keep_records: bool | None = None,
    checkpoint_every: int = EVERY,
    cache_features: bool = False,
    fresh: bool = False,
    keep_going: bool = False,
    log: str | None = None,
    watch: Callable[[GridProgress], None] | None = None,
) -> Summary:
    """Carry out `specs` into the folder `out`. Existing results are reused; a failed run does not stop the others.

    workers, threads: number of processes, and threads of each. By default at most 4 processes, and OMP_NUM_THREADS
    threads or an equal share of the cores. cache_features: whether runs that need only image features share them; their
    times are then not comparable. fresh: whether each run of the local engine has a new process. log: where curves are
    written during a run, such as "tensorboard:FOLDER".

    If a name, a model or a data set is missing, nothing is started and a `MissingError` lists everything that is
    missing. With `keep_going`, the affected runs fail and the others are carried out. On a Ray cluster, each run checks
    its own requirements.
    """
    require_known(engine, ENGINES, "engine")
    workers = min(cores(), MOST_WORKERS) if workers is None else workers
    if threads is None:
        threads = threads_from_environment() or max(1, cores() // max(1, workers))
    if workers < 1 or threads < 1:
        raise Error(
            f"A grid needs at least one worker and one thread, not {workers} and {threads}.", code="option-invalid"
        )
    make_folder(out)
    root = None if root is None else root.absolute()
    common = Job(
        spec=RunSpec(),
        root=root,
        out=out,
        keep_records=keep_records,
        checkpoint_every=checkpoint_every,
        cache_features=cache_features,
        # Absolute, because a worker process may have another working folder.
        log=None if log is None else f"tensorboard:{check_log(log).absolute()}",
    )
    grid = _Grid(common, GridProgress(specs, workers), watch)
    waiting = [spec for spec in specs if not grid.skip(spec)]
    if engine != RAY:
        waiting = grid.with_requirements(waiting, keep_going)
    # Runs locked by another process are tried again at the end: it may have finished or died.
    for _ in range(2):
        if not waiting:
            break
        locked: list[RunSpec] = []
        for ending in _endings(engine, grid.jobs(waiting, locked), workers, threads, grid.step, fresh=fresh):
            grid.end(ending)
        waiting = locked
    ended = grid.progress.ended
    return Summary(
        ended[Outcome.DONE], ended[Outcome.SKIPPED], tuple(grid.failed), tuple(waiting), grid.progress.seconds
    )


class _Grid:
    """The runs of one grid: which have a result, how the others ended, and whom to notify."""

    def __init__(self, common: Job, progress: GridProgress, watch: Callable[[GridProgress], None] | None) -> None:
        self.progress, self.failed = progress, list[Ending]()
        self._common, self._watch = common, watch
        self._streams = Streams(common.root)
        self._reusable = ReusableResults(common.out, common.root, self._streams, records=bool(common.keep_records))

    def jobs(self, waiting: Sequence[RunSpec], locked: list[RunSpec]) -> Iterator[tuple[Job, RunLock]]:
        """Yield the jobs with their locks. Each is made when it is requested; runs locked by others go to `locked`."""
        for spec in waiting:
            lock = try_lock(self._common.out, spec)
            if lock is None:
                locked.append(spec)
                continue
            if self.skip(spec):
                lock.release()
                continue
            try:
                sources = sources_of(spec)
            except Error as problem:
                lock.release()
                self.end(Ending(spec=spec, state=Outcome.FAILED, reason=str(problem)))
                continue
            self.progress.start(spec)
            self._notify()
            update = {"spec": spec, "sources": sources, "stream_identity": self._streams.known_identity(spec)}
            yield self._common.model_copy(update=update), lock

    def with_requirements(self, waiting: Sequence[RunSpec], keep_going: bool) -> list[RunSpec]:
        """Return the runs whose requirements are met. The others fail, or nothing is started at all."""
        missing = missing_for(waiting, self._common.root, self._streams)
        if missing and not keep_going:
            raise MissingError(missing, self.progress.total)
        reasons = {key: each.reason for each in missing for key in each.runs}
        for spec in waiting:
            if run_key(spec) in reasons:
                self.end(Ending(spec=spec, state=Outcome.FAILED, reason=reasons[run_key(spec)]))
        return [spec for spec in waiting if run_key(spec) not in reasons]

    def skip(self, spec: RunSpec) -> bool:
        """Return whether the run has a result; if so, it counts as ended."""
        if not self._reusable.has(spec):
            return False
        self.end(Ending(spec=spec, state=Outcome.SKIPPED))
        return True

    def step(self, spec: RunSpec, done: int, total: int) -> None:
        self.progress.step(spec, done, total)
        self._notify()

    def end(self, ending: Ending) -> None:
        out = self._common.out
        if ending.note:
            warnings.warn(ending.note, stacklevel=2)
        try:
            if ending.state is Outcome.FAILED:
                self.failed.append(ending)
                write_failure(out, ending.spec, ending.reason, ending.trace)
            else:
                remove_failure(out, ending.spec)
        except (Error, OSError) as problem:
            # The other runs continue, and the summary has the reason.
            warnings.warn(f"The ending of the run {ending.key} could not be written: {problem}", stacklevel=2)
        self.progress.end(ending)
        self._notify()

    def _notify(self) -> None:
        if self._watch is not None:
            self._watch(self.progress)


def _endings(
    engine: str, jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int, step: Step, *, fresh: bool
) -> Iterator[Ending]:
    if engine == RAY:
        from .ray import cluster

        return cluster(jobs, workers, threads)
    if engine == INSIDE:
        return inside(jobs, threads, step)
    return local(jobs, workers, threads, step, fresh=fresh)


# --- requirements -----------------------------------------------------------------------------------------------------
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
        seeds = self._found.get(_stream(spec), {})
        self.identity(changed(spec, seed=next(iter(seeds))) if seeds else spec)

    def identity(self, spec: RunSpec) -> tuple[str, str]:
        """Return the identity of the stream, and the hash of its class names; an Error if it cannot be composed."""
        seeds = self._found.setdefault(_stream(spec), {})
        if spec.seed not in seeds:
            try:
                stream, classes = identify(spec, self._root)
                seeds[spec.seed] = stream, class_names_hash(checked_classes(classes))
            except Error as problem:
                seeds[spec.seed] = problem
        found = seeds[spec.seed]
        if isinstance(found, Error):
            raise found
        return found

    def known_identity(self, spec: RunSpec) -> str | None:
        """Return the identity of the stream if it has been composed already."""
        found = self._found.get(_stream(spec), {}).get(spec.seed)
        return found[0] if isinstance(found, tuple) else None


def _stream(spec: RunSpec) -> str:
    """Return the key of a stream. A data set in a file of code is another one if its file changes."""
    code = {name: spec.plugins[name] for name in sets_of(spec) if name in spec.plugins}
    return f"{stream_key(spec)} {json.dumps(code, sort_keys=True)}"


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
        return any(inputs.match(result) for result in found)

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
    # The runs of each problem, and the problem of each requirement that was looked up.
    found: dict[str, set[str]] = {}
    known: dict[str, Error | None] = {}

    def require(spec: RunSpec, what: str, look: Callable[[], object]) -> bool:
        if what not in known:
            known[what] = _problem(look)
        problem = known[what]
        if problem is not None:
            found.setdefault(str(problem), set()).add(run_key(spec))
        return problem is None

    for spec in specs:
        stream, conditions = _stream(spec), f"{spec.corruption} {spec.severity}"
        require(spec, f"names {spec.backbone} {method_key(spec)} {stream}", partial(_require_names, spec))
        require(spec, f"backbone {spec.backbone}", partial(_require_backbone, spec, root))
        sets = [require(spec, f"set {name} {conditions}", partial(_open, spec, name, root)) for name in sets_of(spec)]
        ready = all(sets) and require(spec, f"stream {stream}", partial(streams.check, spec))
        if ready and spec.backbone.startswith(PREFIX):
            # A feature file is opened quickly, and cannot run every method.
            require(spec, f"method {spec.backbone} {method_key(spec)}", partial(prepare, spec, root, None, ""))
    absent = {str(problem) for problem in known.values() if isinstance(problem, AbsentError)}
    return [Missing(reason, frozenset(keys), reason in absent) for reason, keys in found.items()]


def sets_needed(specs: Sequence[RunSpec]) -> list[tuple[str, str]]:
    """Return the data sets that `specs` open, each once, with the corruption under which it is opened.

    >>> sets_needed([RunSpec(desired="cifar10c", undesired="mnist:train", corruption="fog")])
    [('cifar10c', 'fog'), ('mnist:train', 'fog')]
    """
    needed: dict[tuple[str, str], tuple[str, str]] = {}

    def need(name: str, corruption: str) -> None:
        # A data set without corruptions needs one entry.
        needed[name, corruption if parse_name(name).corrupted else ""] = (name, corruption)

    for spec in specs:
        scenario = spec.scenario
        domains = [(spec.desired, spec.undesired, spec.corruption)]
        if scenario.kind in ("continual", "frequent"):
            domains = [(spec.desired, spec.undesired, each) for each in scenario.corruptions]
        elif scenario.kind == "smooth":
            domains = [(parse_name(spec.desired).clean, spec.undesired, spec.corruption)]
        elif scenario.kind == "domains":
            domains = [
                (each.desired, each.undesired or spec.undesired, each.corruption or spec.corruption)
                for each in scenario.domains
            ]
        for desired, undesired, corruption in domains:
            need(desired, corruption)
            if undesired is not None and spec.ratio > 0:
                need(undesired, scenario.undesired_corruption or corruption)
    return list(needed.values())


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


# --- progress ---------------------------------------------------------------------------------------------------------
@dataclass
class Active:
    """A run that is being carried out.

    total: number of images, 0 before the first report. first, before: time and number of images of the first report.
    The speed is measured from there, because starting takes long, and a resumed run starts with many images done.
    """

    spec: RunSpec
    began: float
    first: float = 0.0
    before: int = 0
    latest: float = 0.0
    done: int = 0
    total: int = 0

    @property
    def image_seconds(self) -> float | None:
        """Seconds for one image; None if unknown."""
        return (self.latest - self.first) / (self.done - self.before) if self.done > self.before else None


class GridProgress:
    """The waiting, active and ended runs. Time left is estimated from runs of the same method and backbone."""

    def __init__(self, specs: Sequence[RunSpec], workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.workers, self._clock = len(specs), workers, clock
        self.waiting = {run_key(spec): spec for spec in specs}
        self.active: dict[str, Active] = {}
        self.ended: Counter[Outcome] = Counter()
        self._began = clock()
        self._taken: dict[tuple[str, str], list[float]] = {}

    def start(self, spec: RunSpec) -> None:
        key = run_key(spec)
        self.waiting.pop(key, None)
        self.active[key] = Active(spec, self._clock())

    def step(self, spec: RunSpec, done: int, total: int) -> None:
        run, now = self.active[run_key(spec)], self._clock()
        if not run.total:
            run.first, run.before = now, done
        run.latest, run.done, run.total = now, done, total

    def end(self, ending: Ending) -> None:
        self.waiting.pop(ending.key, None)
        run = self.active.pop(ending.key, None)
        self.ended[ending.state] += 1
        if run is not None and ending.state is Outcome.DONE:
            self._taken.setdefault(_kind(run.spec), []).append(self._clock() - run.began)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def finished(self) -> float:
        """Number of finished runs; active runs count by their share of images."""
        return sum(self.ended.values()) + sum(run.done / run.total for run in self.active.values() if run.total)

    @property
    def left(self) -> float | None:
        """Seconds left; None if unknown."""
        active = [self._left_of(run) for run in self.active.values()]
        waiting = [self._expected(spec) for spec in self.waiting.values()]
        known = [seconds for seconds in (*active, *waiting) if seconds is not None]
        if not known:
            return None if active or waiting else 0.0
        # Runs without an estimate count as the mean of the others. Workers cannot share the last run.
        work = sum(known) * (len(active) + len(waiting)) / len(known)
        return max(work / self.workers, *(seconds for seconds in active if seconds is not None), 0.0)

    def _left_of(self, run: Active) -> float | None:
        if run.image_seconds is not None:
            return run.image_seconds * (run.total - run.done)
        expected = self._expected(run.spec)
        return None if expected is None else max(0.0, expected - (self._clock() - run.began))

    def _expected(self, spec: RunSpec) -> float | None:
        """Return the mean of finished runs of the same kind, else of active runs of the same kind, else of all runs."""
        like = self._taken.get(_kind(spec)) or [
            run.first - run.began + run.image_seconds * run.total
            for run in self.active.values()
            if run.image_seconds is not None and _kind(run.spec) == _kind(spec)
        ]
        taken = like or [seconds for kind in self._taken.values() for seconds in kind]
        return sum(taken) / len(taken) if taken else None


def _kind(spec: RunSpec) -> tuple[str, str]:
    return spec.backbone, spec.method
