"""A grid of runs: plan, progress, and each run carried out once."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config.registry import require_known
from ..core.types import Error
from ..io import make_folder
from .checkpoint import EVERY
from .folder import RunLock, remove_failure, try_lock, write_failure
from .log import check_log
from .machine import cores, threads_from_environment
from .requirements import MissingError, ReusableResults, Streams, missing_for
from .spec import RunSpec, run_key, sources_of
from .suite import Cell, Suite, expand
from .worker import Ending, Job, Outcome, Step, inside
from .workers import local


@dataclass
class Active:
    """A run under way. `total` is 0 until the first word of it, at the time `first` and with `before` images done.

    Its speed is counted from there: starting takes long, and a run that goes on from a checkpoint has most images behind it.
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
        """Seconds an image, or None while they are unknown."""
        return (self.latest - self.first) / (self.done - self.before) if self.done > self.before else None


class GridProgress:
    """What is waiting, under way and ended. Time left is by what runs of the same method and backbone have taken so far."""

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
        """Runs, those under way by the part of their images."""
        return sum(self.ended.values()) + sum(run.done / run.total for run in self.active.values() if run.total)

    @property
    def left(self) -> float | None:
        """Seconds, or None while nothing is known."""
        active = [self._left_of(run) for run in self.active.values()]
        waiting = [self._expected(spec) for spec in self.waiting.values()]
        known = [seconds for seconds in (*active, *waiting) if seconds is not None]
        if not known:
            return None if active or waiting else 0.0
        # What cannot be guessed yet counts as the mean of the rest. The last run cannot be shared between workers.
        work = sum(known) * (len(active) + len(waiting)) / len(known)
        return max(work / self.workers, *(seconds for seconds in active if seconds is not None), 0.0)

    def _left_of(self, run: Active) -> float | None:
        if run.image_seconds is not None:
            return run.image_seconds * (run.total - run.done)
        expected = self._expected(run.spec)
        return None if expected is None else max(0.0, expected - (self._clock() - run.began))

    def _expected(self, spec: RunSpec) -> float | None:
        """The mean of runs like it, else of those under way that are like it, else of all."""
        like = self._taken.get(_kind(spec)) or [
            run.first - run.began + run.image_seconds * run.total
            for run in self.active.values()
            if run.image_seconds is not None and _kind(run.spec) == _kind(spec)
        ]
        taken = like or [seconds for kind in self._taken.values() for seconds in kind]
        return sum(taken) / len(taken) if taken else None


def _kind(spec: RunSpec) -> tuple[str, str]:
    return spec.backbone, spec.method


LOCAL, RAY, INSIDE = ENGINES = ("local", "ray", "inside")


# More only where asked for: each worker has a model in memory.
MOST_WORKERS = 4


@dataclass(frozen=True)
class Summary:
    """How the runs of a grid ended. `elsewhere` are those that another runner has under way."""

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
    """The runs of a suite in its order, each once, or those of shard i of n.

    Shards have no run in common, and together they have all; they differ by at most one in size. The runs are dealt out by what the
    suite says of them, so machines that share nothing but the suite and these arguments agree on who has what, wherever each has
    its folders.
    """
    number, count = shard
    if not 1 <= number <= count:
        raise Error(f"A shard is i/n with i from 1 to n, not {number}/{count}.", code="option-invalid")
    cells: dict[str, Cell] = {}
    for cell in expand(suite, seeds, limit, only):
        cells.setdefault(run_key(cell.spec), cell)
    mine = set(sorted(cells, key=lambda key: _lot(cells[key]))[number - 1 :: count])
    return [cell.spec for key, cell in cells.items() if key in mine]


def _lot(cell: Cell) -> str:
    """A sort key that mixes the runs of all axes in the same order on every machine."""
    return hashlib.sha256(cell.request.encode()).hexdigest()


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
    """Carry out `specs` into the folder `out`; what has a result there is skipped, and what fails is noted and does not stop the rest.

    `workers` processes at once, each with `threads` threads; None: up to 4, and as OMP_NUM_THREADS says or the cores shared out. `cache_features`:
    runs on one stream that need nothing but image features share them, and their times are not comparable. `fresh`: each run
    of the local engine has a new process.

    Where a name, a model or a data set that some runs need is missing, nothing is started and a `MissingError` says all that is; with
    `keep_going` those runs fail, and the others are carried out. On a Ray cluster each run finds out by itself. `log` is where curves are
    written on the way, such as "tensorboard:FOLDER".
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
        log=_placed(log),
    )
    grid = _Grid(common, GridProgress(specs, workers), watch)
    waiting = [spec for spec in specs if not grid.skip(spec)]
    if engine != RAY:
        waiting = grid.able(waiting, keep_going)
    # What another runner has locked gets a second look at the end: it may have finished by then, or died.
    for _ in ("first look", "second look"):
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
    """The runs on one folder: which are there, which have ended how, and who is told."""

    def __init__(self, common: Job, progress: GridProgress, watch: Callable[[GridProgress], None] | None) -> None:
        self.progress, self.failed = progress, list[Ending]()
        self._common, self._watch = common, watch
        self._streams = Streams(common.root)
        self._reusable = ReusableResults(common.out, common.root, self._streams, records=bool(common.keep_records))

    def jobs(self, waiting: Sequence[RunSpec], locked: list[RunSpec]) -> Iterator[tuple[Job, RunLock]]:
        """What is to be done, each with its lock, made at the moment it is asked for; what others have goes to `locked`."""
        for spec in waiting:
            lock = try_lock(self._common.out, spec)
            if lock is None:
                locked.append(spec)
            elif self.skip(spec):
                lock.release()
            else:
                try:
                    sources = sources_of(spec)
                except Error as problem:
                    lock.release()
                    self.end(Ending(spec=spec, state=Outcome.FAILED, reason=str(problem)))
                    continue
                self.progress.start(spec)
                self._tell()
                identity = self._streams.known_identity(spec)
                update = {"spec": spec, "sources": sources, "stream_identity": identity}
                yield self._common.model_copy(update=update), lock

    def able(self, waiting: Sequence[RunSpec], keep_going: bool) -> list[RunSpec]:
        """Those of `waiting` for which nothing is missing; the others have failed, or nothing is started at all."""
        missing = missing_for(waiting, self._common.root, self._streams)
        if missing and not keep_going:
            raise MissingError(missing, self.progress.total)
        reasons = {key: each.reason for each in missing for key in each.runs}
        for spec in waiting:
            if run_key(spec) in reasons:
                self.end(Ending(spec=spec, state=Outcome.FAILED, reason=reasons[run_key(spec)]))
        return [spec for spec in waiting if run_key(spec) not in reasons]

    def skip(self, spec: RunSpec) -> bool:
        """Whether the result is there already; then the run has ended."""
        if not self._reusable.has(spec):
            return False
        self.end(Ending(spec=spec, state=Outcome.SKIPPED))
        return True

    def step(self, spec: RunSpec, done: int, total: int) -> None:
        self.progress.step(spec, done, total)
        self._tell()

    def end(self, ending: Ending) -> None:
        out = self._common.out
        try:
            if ending.state is Outcome.FAILED:
                self.failed.append(ending)
                write_failure(out, ending.spec, ending.reason, ending.trace)
            else:
                remove_failure(out, ending.spec)
        except (Error, OSError) as problem:
            # The other runs go on, and the summary has what the file would have said.
            warnings.warn(f"How the run {ending.key} ended could not be noted: {problem}", stacklevel=2)
        self.progress.end(ending)
        self._tell()

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch(self.progress)


def _placed(log: str | None) -> str | None:
    """The log with its folder from the root: a process may not be where this one is."""
    if log is None:
        return None
    kind, folder = check_log(log)
    return f"{kind}:{folder.absolute()}"


def _endings(
    engine: str, jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int, step: Step, *, fresh: bool
) -> Iterator[Ending]:
    if engine == RAY:
        from .ray import cluster

        return cluster(jobs, workers, threads)
    if engine == INSIDE:
        return inside(jobs, threads, step)
    return local(jobs, workers, threads, step, fresh=fresh)
