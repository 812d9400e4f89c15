"""`ostta run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    OUT,
    Ahead,
    Backbone,
    Classes,
    Corruption,
    Data,
    Device,
    Dtype,
    Guard,
    Identifier,
    Log,
    Method,
    Out,
    Records,
    Score,
    Seed,
    Severity,
    Workers,
    parse_device,
    parse_integers,
    parse_seeds,
    parse_values,
)
from .run_config import read_config


def run(
    backbone: Backbone = "embedded",
    method: Method = None,
    desired: Annotated[
        str | None,
        typer.Option(
            help="Data set of the known classes; see `ostta ls datasets`. Default: cifar10c, or the included sample if "
            "there is no data folder."
        ),
    ] = None,
    undesired: Annotated[
        str | None,
        typer.Option(help="Data set of the unknown images. Default: mnist, or the included sample."),
    ] = None,
    undesired_classes: Annotated[
        str | None,
        typer.Option(help="Instead of --undesired, classes of the known data set that are unknown: a,b,c or a file."),
    ] = None,
    score: Score = None,
    identifier: Identifier = None,
    corruption: Corruption = "snow",
    severity: Severity = 5,
    limit: Annotated[
        int | None,
        typer.Option(help="Number of known images, with `ratio` times as many unknown ones; --draw says which ones."),
    ] = None,
    scenario: Annotated[
        str,
        typer.Option(
            help="single, continual, frequent, smooth, ordered, shuffled, unknown_first, one_class_first, sorted, "
            "covered or fooling; or a JSON file of a scenario."
        ),
    ] = "single",
    corruptions: Annotated[
        str | None,
        typer.Option(help="For continual, frequent and smooth: corruptions a,b,c. Default: those of the benchmark."),
    ] = None,
    images_per_domain: Annotated[
        int | None,
        typer.Option(
            help="For frequent: known images until the corruption changes (100). For unknown_first, one_class_first "
            "and covered: images of the hostile part. For shuffled: maximum number of known images (1000)."
        ),
    ] = None,
    speed: Annotated[
        int | None, typer.Option(help="For smooth: known images until a severity changes by 0.25 (100).")
    ] = None,
    undesired_corruption: Annotated[
        str | None, typer.Option(help="Corruption of the unknown images, if it differs from that of the known ones.")
    ] = None,
    arrangement: Annotated[
        str,
        typer.Option(
            help="For single and shuffled: the order of the images. shuffled: random. ordered: class by class. bursts: "
            "in runs of one class. Unknown images come in runs of their classes too."
        ),
    ] = "shuffled",
    burst_lengths: Annotated[
        str, typer.Option(help="For bursts: the smallest and the largest number of images in a run.")
    ] = "5,40",
    ratio: Annotated[float, typer.Option(help="Unknown images per known image; 0 for known images only.")] = 1.0,
    seed: Seed = 0,
    seeds: Annotated[
        str | None,
        typer.Option(help="Several seeds, such as 0,1,2, instead of --seed: prints a table with mean and spread."),
    ] = None,
    orders: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The same images in this number of orders, instead of --seeds and --draw: prints a table with mean, "
            "spread and worst order.",
        ),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            help="What a seed changes. order: the order of the first images of the set. images: also which images are "
            "drawn, evenly from the classes, which is the default for your own data sets. orders: only the order of "
            "the images that seed 0 draws."
        ),
    ] = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    profile: Annotated[
        str, typer.Option(help="Default components and options: reference, paper or field; see `ostta ls profiles`.")
    ] = "reference",
    ahead: Ahead = 1,
    guard: Guard = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An option as key=value; repeat it for several options. See `ostta ls options`. Several values, as in "
            "lr=1e-3,3e-3, make a grid; repeat an option that takes a list.",
        ),
    ] = None,
    classes: Classes = None,
    data: Data = None,
    out: Out = OUT,
    records: Records = None,
    log: Log = None,
    workers: Workers = None,
    config: Annotated[
        Path | None,
        typer.Option(
            is_eager=True,
            callback=read_config,
            help="TOML file with these options by name and a table `set`. Options on the command line take precedence.",
        ),
    ] = None,
) -> None:
    """Run one method on one stream.

    The command writes a result file, whose path is printed last.

    With several seeds or several values of an option, the command carries out all combinations, prints a table and
    writes a page and a suite file, whose path is printed last.

    Example: ostta run --method rosita --desired cifar10c --undesired svhn --limit 1000 --data DATA --set losses=re,d

    Example: ostta run --method mine.py:Mine --set weight=0.5 --desired sample:cifar10c --undesired sample:mnist

    Example: ostta run --desired folder:pets --undesired-classes "ferret,parrot" --limit 500

    Example: ostta run --seeds 0,1,2 --set lr=1e-3,3e-3,1e-2 --desired cifar10c:train --limit 500
    --draw images --data DATA

    Example: ostta run --orders 10 --method tda

    Example: ostta run --config run.toml --seed 3

    Example: ostta run --method tda --arrangement bursts --burst-lengths 10,20

    Example: ostta run --scenario frequent --images-per-domain 250 --corruptions snow,fog,jpeg --data DATA
    """
    from ..bench.log import check_log
    from ..bench.request import read_scenario, requested_sweep
    from ..bench.spec import changed
    from ..data.class_names import parse_classes

    if log is not None:
        check_log(log)
    sweep, note = requested_sweep(
        backbone=backbone,
        profile=profile,
        method=method,
        score=score,
        identifier=identifier,
        options=parse_values(set_ or []),
        desired=desired,
        undesired=undesired,
        undesired_classes=None if undesired_classes is None else parse_classes(undesired_classes),
        classes=None if classes is None else parse_classes(classes),
        root=data,
        corruption=corruption,
        severity=severity,
        scenario=read_scenario(
            scenario,
            corruptions=None if corruptions is None else [name.strip() for name in corruptions.split(",")],
            images=images_per_domain,
            speed=speed,
            undesired_corruption=undesired_corruption,
        ),
        arrangement=arrangement,
        burst_lengths=parse_integers("--burst-lengths", burst_lengths),
        limit=limit,
        ratio=ratio,
        seed=seed,
        seeds=parse_seeds(seeds),
        orders=orders,
        draw=draw,
        guard=guard,
        device=parse_device(device),
        dtype=dtype,
        ahead=ahead,
    )
    if note:
        print(note)
    if sweep.values or len(sweep.seeds) > 1:
        from .run_several import run_several

        run_several(sweep, data, out, records=records, log=log, workers=workers)
    else:
        from .run_one import run_one

        run_one(changed(sweep.spec, seed=sweep.seeds[0]), data, out, records=records, log=log)
