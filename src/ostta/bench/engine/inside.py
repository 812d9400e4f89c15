"""The engine inside: one run after another in this process, with each backbone loaded once.

For grids of many short runs, where starting a process for each would take most of the time. A crash of one run is the end of all, and the
peak memory in the results is that of the process.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...backbones.protocol import Backbone
from ...core.types import Error
from ...plugins import names_file
from ..run.execute import open_backbone
from ..run.locks import RunLock
from ..spec import RunSpec
from .job import Ending, Job, attempt
from .local import Step


def inside(jobs: Iterator[tuple[Job, RunLock]], threads: int, step: Step) -> Iterator[Ending]:
    """The endings of `jobs` as they come."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    loaded: dict[tuple[str, str, str], Backbone] = {}
    try:
        for job, lock in jobs:
            with lock:
                spec = job.spec

                def watch(done: int, total: int, hm: float | None, spec: RunSpec = spec) -> None:
                    step(spec, done, total)

                yield attempt(job, watch, _backbone(spec, loaded))
    finally:
        torch.set_num_threads(before)


def _backbone(spec: RunSpec, loaded: dict[tuple[str, str, str], Backbone]) -> Backbone | None:
    """The backbone of a run, if it is one that may be shared; None: the run opens it, or says why it cannot."""
    if names_file(spec.backbone):
        return None
    key = (spec.backbone, spec.device, spec.dtype)
    if key not in loaded:
        try:
            loaded[key] = open_backbone(spec)
        except Error:
            return None
    return loaded[key]
