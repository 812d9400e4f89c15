"""`ostta bench run`: carry out the runs of a suite."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import (
    DEVICE_HELP,
    DTYPE_HELP,
    OUT,
    Data,
    Log,
    Out,
    Records,
    parse_device,
    parse_only,
    parse_seeds,
    parse_shard,
)


def run(
    suite: Annotated[str, typer.Argument(help="See `ostta bench ls`, or a TOML file of yours.")],
    limit: Annotated[int | None, typer.Option(help="Lowers the suite's number of desired images a domain.")] = None,
    seeds: Annotated[str | None, typer.Option(help="In place of the suite's: 0,1,2.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="axis=entry,entry, as often as needed: --only method=rosita,zero_shot.")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="i/n: the i-th of n parts, for machines that share nothing; i is 1 to n.")
    ] = "1/1",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at once, in a process each; else as many as cores, up to 4.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads of each run; else as OMP_NUM_THREADS says, or the cores shared out between the workers.",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="local; inside: one run after another in this process, for many short ones; or ray: the cluster at RAY_ADDRESS, or one on this machine."
        ),
    ] = "local",
    device: Annotated[str | None, typer.Option(help=f"In place of the suite's: {DEVICE_HELP}")] = None,
    dtype: Annotated[str | None, typer.Option(help=f"In place of the suite's. {DTYPE_HELP}")] = None,
    data: Data = None,
    out: Out = OUT,
    records: Records = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Images between two checkpoints of a run.")] = 2_000,
    cache_features: Annotated[
        bool | None,
        typer.Option(
            help="Share image features between runs on one stream that need nothing else; no times then. Else as the suite says."
        ),
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Where a model or data are missing for some runs, carry out the others."),
    ] = False,
    log: Log = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="A new process for each run; else processes live on from run to run."),
    ] = False,
) -> None:
    """Carry out all runs of a suite; results in the folder are reused, and failed runs are tried again.

    Example: ostta bench run embedded/table-cifar --limit 100 --only method=zero_shot,rosita --workers 2 --data DATA
    """
    from ..bench.requirements import MissingError
    from ..bench.runner import plan, run_grid
    from ..bench.spec import changed
    from ..bench.suite import load_suite
    from .grid_progress import duration, grid_progress, tell_missing, title

    asked = load_suite(suite)
    specs = plan(asked, parse_seeds(seeds), limit, parse_only(only or []), parse_shard(shard))
    given = {"device": None if device is None else parse_device(device), "dtype": dtype}
    specs = [changed(spec, **{name: value for name, value in given.items() if value is not None}) for spec in specs]
    try:
        with grid_progress() as watch:
            summary = run_grid(
                specs,
                data,
                out,
                workers=workers,
                threads=threads,
                engine=engine,
                keep_records=True if records is None and asked.records else records,
                checkpoint_every=checkpoint_every,
                cache_features=asked.cache_features if cache_features is None else cache_features,
                fresh=fresh,
                keep_going=keep_going,
                log=log,
                watch=watch,
            )
    except MissingError as problem:
        tell_missing(problem, suite)
        raise typer.Exit(1) from None
    for ending in summary.failed:
        typer.echo(f"{title(ending.spec)} failed: {ending.reason}", err=True)
    counts = [f"{summary.done} done", f"{summary.skipped} reused", f"{len(summary.failed)} failed"]
    if summary.elsewhere:
        counts.append(f"{len(summary.elsewhere)} under way in another runner")
    print(f"{', '.join(counts)}, in {duration(summary.seconds)}: {out}")
    if summary.failed:
        raise typer.Exit(1)
