"""`ostta bench run`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import (
    DEVICE,
    OUT,
    Data,
    Limit,
    Log,
    Only,
    Out,
    Records,
    Seeds,
    Workers,
    parse_device,
    parse_only,
    parse_seeds,
    parse_shard,
)


def run(
    suite: Annotated[str, typer.Argument(help="A suite of `ostta bench ls`, or a TOML file.")],
    limit: Limit = None,
    seeds: Seeds = None,
    only: Only = None,
    shard: Annotated[
        str, typer.Option(help="Run part i of n parts, as i/n, to share a suite between separate machines.")
    ] = "1/1",
    workers: Workers = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads per run. Default: OMP_NUM_THREADS, or the cores divided by the workers."),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="local: worker processes. inside: one run after the other in this process, for many short runs. ray: "
            "the cluster at RAY_ADDRESS, or a new one on this machine."
        ),
    ] = "local",
    device: Annotated[str | None, typer.Option(help=f"Device instead of that of the suite: {DEVICE}")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Precision instead of that of the suite: float32, bfloat16 or float16.")
    ] = None,
    data: Data = None,
    out: Out = OUT,
    records: Records = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Images between two checkpoints of a run.")] = 2_000,
    cache_features: Annotated[
        bool | None,
        typer.Option(
            help="Share image features between runs on the same stream that need nothing else; times are then not "
            "comparable. Default: what the suite says."
        ),
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="If the model or the data of some runs are missing, carry out the others."),
    ] = False,
    log: Log = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new process for each run instead of reusing processes.")
    ] = False,
) -> None:
    """Carry out all runs of a suite.

    Existing results in the folder are reused, and failed runs are repeated.

    Example: ostta bench run embedded/table-cifar --limit 100 --only method=zero_shot,rosita --workers 2 --data DATA
    """
    from ..bench.runner import plan
    from ..bench.spec import changed
    from ..bench.suite import load_suite
    from .progress import duration, run_runs

    loaded = load_suite(suite)
    specs = plan(loaded, parse_seeds(seeds), limit, parse_only(only or []), parse_shard(shard))
    machine = {} if device is None else {"device": parse_device(device)}
    machine |= {} if dtype is None else {"dtype": dtype}
    summary = run_runs(
        [changed(spec, **machine) for spec in specs],
        data,
        out,
        suite,
        workers=workers,
        threads=threads,
        engine=engine,
        keep_records=True if records is None and loaded.records else records,
        checkpoint_every=checkpoint_every,
        cache_features=loaded.cache_features if cache_features is None else cache_features,
        fresh=fresh,
        keep_going=keep_going,
        log=log,
    )
    counts = [f"{summary.done} done", f"{summary.skipped} reused", f"{len(summary.failed)} failed"]
    if summary.elsewhere:
        counts.append(f"{len(summary.elsewhere)} active in another runner")
    print(f"{', '.join(counts)}, in {duration(summary.seconds)}: {out}")
    if summary.failed:
        raise typer.Exit(1)
