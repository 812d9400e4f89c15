"""A grid of runs: what a suite asks for, carried out once each, whatever happens on the way."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...config.registry import require_known
from ...core.types import Error
from ...io import make_folder
from ..failure import remove_failure, write_failure
from ..own_code import sources_of
from ..run.checkpoint import EVERY
from ..run.load import cores
from ..run.locks import RunLock, try_lock
from ..run.log import check_log
from ..spec import RunSpec, run_key
from ..suite import Cell, Suite, expand
from .existing_runs import ExistingRuns
from .inside import inside
from .job import Ending, Job, Outcome
from .local import Step, local
from .progress import GridProgress
from .requirements import MissingError, missing_for
from .threads import threads_from_environment

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
        raise Error(f"A shard is i/n with i from 1 to n, not {number}/{count}.")
    cells: dict[str, Cell] = {}
    for cell in expand(suite, seeds, limit, only):
        cells.setdefault(run_key(cell.spec), cell)
    mine = set(sorted(cells, key=lambda key: _lot(cells[key]))[number - 1 :: count])
    return [cell.spec for key, cell in cells.items() if key in mine]


def _lot(cell: Cell) -> str:
    """A sort key that mixes the runs of all axes in the same order on every machine."""
    return hashlib.sha256(cell.asked.encode()).hexdigest()


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
        raise Error(f"A grid needs at least one worker and one thread, not {workers} and {threads}.")
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
        self._existing = ExistingRuns(common.out, common.root, common.keep_records)

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
                yield self._common.model_copy(update={"spec": spec, "sources": sources}), lock

    def able(self, waiting: Sequence[RunSpec], keep_going: bool) -> list[RunSpec]:
        """Those of `waiting` for which nothing is missing; the others have failed, or nothing is started at all."""
        missing = missing_for(waiting, self._common.root)
        if missing and not keep_going:
            raise MissingError(missing, self.progress.total)
        reasons = {key: each.reason for each in missing for key in each.runs}
        for spec in waiting:
            if run_key(spec) in reasons:
                self.end(Ending(spec=spec, state=Outcome.FAILED, reason=reasons[run_key(spec)]))
        return [spec for spec in waiting if run_key(spec) not in reasons]

    def skip(self, spec: RunSpec) -> bool:
        """Whether the result is there already; then the run has ended."""
        if not self._existing.has(spec):
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
        from .ray_cluster import cluster

        return cluster(jobs, workers, threads)
    if engine == INSIDE:
        return inside(jobs, threads, step)
    return local(jobs, workers, threads, step, fresh=fresh)
