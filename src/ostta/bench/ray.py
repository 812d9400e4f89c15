"""The Ray engine: runs on the machines of a Ray cluster. Workers return their files, and only the driver writes."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core.types import Error
from ..io import make_folder, write_atomically
from ..ray_cluster import connect, require_ray
from .features import FOLDER
from .folder import RunLock
from .machine import environment
from .workers import Ending, Job, Outcome, attempt


def cluster(jobs: Iterator[tuple[Job, RunLock]], workers: int, threads: int) -> Iterator[Ending]:
    """Yield the endings of `jobs`, with at most `workers` runs at a time, on a Ray cluster.

    The cluster is the one at RAY_ADDRESS, or this machine. The data must have the same path on every machine. There are
    no checkpoints: an interrupted run starts again.
    """
    ray = require_ray()
    connect(ray, workers * threads)
    # Each run has a new process, so that no run affects the next.
    task = ray.remote(
        max_calls=1,
        max_retries=0,
        num_cpus=threads,
        runtime_env={"env_vars": environment(threads)},
    )(_carry_out)
    running: dict[Any, tuple[Job, RunLock]] = {}
    try:
        while True:
            for job, lock in itertools.islice(jobs, workers - len(running)):
                # Ray assigns GPUs, and a run waits for one.
                gpus = 1 if job.spec.device.startswith("cuda") else 0
                running[task.options(num_gpus=gpus).remote(job.model_dump_json())] = job, lock
            if not running:
                return
            ready, _ = ray.wait(list(running), num_returns=1)
            job, lock = running[ready[0]]
            try:
                ending = _received(ray, ready[0], job)
            finally:
                lock.release()
                del running[ready[0]]
            yield ending
    finally:
        for _, lock in running.values():
            lock.release()
        ray.shutdown()


def _carry_out(content: str) -> tuple[str, dict[str, bytes]]:
    """Carry out a run on a worker in a temporary folder; return its files by their paths relative to that folder.

    Cached features are copied into the folder if the worker can read the folder of the results. The identity of the
    stream is computed here, on the data of this machine.
    """
    with tempfile.TemporaryDirectory(prefix="ostta-") as folder:
        job, out = Job.model_validate_json(content), Path(folder)
        if job.cache_features and (job.out / FOLDER).is_dir():
            shutil.copytree(job.out / FOLDER, out / FOLDER)
        copied = set(out.rglob("*"))
        ending = attempt(job.model_copy(update={"out": out, "stream_identity": None}))
        written = [path for path in out.rglob("*") if path.is_file() and path not in copied]
        # Checkpoints are not returned, because the next attempt may be on another machine.
        files = {
            path.relative_to(out).as_posix(): path.read_bytes()
            for path in written
            if path.parent == out or path.is_relative_to(out / FOLDER)
        }
    return ending.model_dump_json(), files


def _received(ray: Any, reference: Any, job: Job) -> Ending:
    """Write the files of a finished task, the result file last because it names the others; return the ending."""
    try:
        text, files = ray.get(reference)
    except ray.exceptions.RayError as problem:
        reason = f"The Ray worker of this run was lost ({type(problem).__name__})."
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=reason, trace=str(problem))
    try:
        for name in sorted(files, key=lambda name: name.endswith(".json")):
            make_folder((job.out / name).parent)
            write_atomically(job.out / name, files[name])
    except Error as problem:
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=str(problem))
    return Ending.model_validate_json(text)
