"""The engine inside: one run after another in this process, with each backbone loaded once.

A crash of one run is the end of all.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..run.locks import RunLock
from ..spec import RunSpec
from .job import Ending, Job, attempt
from .loaded import LoadedBackbones
from .local import Step
from .threads import limited


def inside(jobs: Iterator[tuple[Job, RunLock]], threads: int, step: Step) -> Iterator[Ending]:
    """The endings of `jobs` as they come."""
    loaded = LoadedBackbones()
    with limited(threads):
        for job, lock in jobs:
            with lock:
                spec = job.spec

                def watch(done: int, total: int, hm: float | None, spec: RunSpec = spec) -> None:
                    step(spec, done, total)

                yield attempt(job, watch, loaded.of(spec, job.root))
