"""`ostta run`: one method on one stream, one result file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.types import Error
from .options import (
    OUT,
    Classes,
    Corruption,
    Data,
    Device,
    Dtype,
    Log,
    Out,
    Records,
    Severity,
    parse_device,
    parse_seeds,
    parse_values,
)
from .run_config import read_config

if TYPE_CHECKING:
    from ..bench.spec import RunSpec


def run(
    backbone: Annotated[
        str, typer.Option(help="embedded, a hub id, a local folder, onnx:FOLDER, features:FILE, or file.py:Name.")
    ] = "embedded",
    method: Annotated[
        str | None, typer.Option(help="See `ostta ls methods`; or file.py:Name of your own; else the profile's.")
    ] = None,
    desired: Annotated[
        str | None,
        typer.Option(
            help="Data set of the known classes; see `ostta ls datasets`; cifar10c if nothing is said, or without a data folder the "
            "sample that ships."
        ),
    ] = None,
    undesired: Annotated[
        str | None,
        typer.Option(help="Data set of the unknown images; mnist if nothing is said, or the sample that ships."),
    ] = None,
    undesired_classes: Annotated[
        str | None,
        typer.Option(help="Classes of the desired set that are unknown, a,b,c or a file: in the place of --undesired."),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(help="See `ostta ls scores`; else the profile's, the one that the identifier needs, or max."),
    ] = None,
    identifier: Annotated[str | None, typer.Option(help="See `ostta ls identifiers`; else the profile's.")] = None,
    corruption: Corruption = "snow",
    severity: Severity = 5,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Only N desired images (and N times ratio undesired): the first, or of a folder or another set of your own some of "
            "each class, as --draw says."
        ),
    ] = None,
    scenario: Annotated[
        str,
        typer.Option(
            help="single, continual, frequent, smooth, ordered, shuffled, unknown_first, one_class_first, sorted, covered or fooling; or a JSON file of a scenario."
        ),
    ] = "single",
    corruptions: Annotated[
        str | None, typer.Option(help="For continual, frequent and smooth: a,b,c; else the benchmark's.")
    ] = None,
    images_per_domain: Annotated[
        int | None,
        typer.Option(
            help="For frequent: desired images until the corruption changes (100); for unknown_first, one_class_first and covered: "
            "the images of the hostile stretch; for shuffled: desired images at most (1000)."
        ),
    ] = None,
    speed: Annotated[
        int | None, typer.Option(help="For smooth: desired images until a severity changes by 0.25 (100).")
    ] = None,
    undesired_corruption: Annotated[
        str | None, typer.Option(help="For undesired sets whose name ends in c, in place of the desired side's.")
    ] = None,
    ratio: Annotated[float, typer.Option(help="Undesired images per desired one; 0 for a closed set.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of order, corruption and augmentation.")] = 0,
    seeds: Annotated[
        str | None,
        typer.Option(help="Several, 0,1,2, in place of --seed: a table with their mean and spread, frozen row first."),
    ] = None,
    orders: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The same images in so many orders, in place of --seeds and --draw: a table with mean, spread and worst order.",
        ),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            help="What the seed draws: order (of the first N images), images (which N of the set, as many of each class as "
            "there can be): the default for a set of your own; or orders (images of seed 0, as --orders does)."
        ),
    ] = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    profile: Annotated[str, typer.Option(help="reference, paper or field; see `ostta ls profiles`.")] = "reference",
    ahead: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_024,
            help="Images that are encoded in one batch before they are decided one after the other, for methods that train nothing in "
            "the image tower. Scores change by less than 1e-5, and times are shares of a batch.",
        ),
    ] = 1,
    guard: Annotated[
        bool,
        typer.Option("--guard/--no-guard", help="Watch the method without labels and take back what harms."),
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="key=value, as often as needed: --set lr=1e-3; see `ostta ls options`. Several values, --set lr=1e-3,3e-3, make a grid; "
            "of an option that is a list itself, by giving it several times.",
        ),
    ] = None,
    classes: Classes = None,
    data: Data = None,
    out: Out = OUT,
    records: Records = None,
    log: Log = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Of several runs, so many at once; else as many as cores, up to 4.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            is_eager=True,
            callback=read_config,
            help="A TOML file with these options by name, and a table `set`; what is typed comes first.",
        ),
    ] = None,
) -> None:
    """Run one method on one stream and write one result file; its path is printed last.

    With several seeds or several values of an option: all of them, a table, a page, and a suite file, whose path is printed last.

    Example: ostta run --method rosita --desired cifar10c --undesired svhn --limit 1000 --data DATA --set losses=re,d

    Example: ostta run --method mine.py:Mine --set weight=0.5 --desired sample:cifar10c --undesired sample:mnist

    Example: ostta run --desired folder:pets --undesired-classes "ferret,parrot" --limit 500

    Example: ostta run --seeds 0,1,2 --set lr=1e-3,3e-3,1e-2 --desired cifar10c:train --limit 500 --draw images --data DATA

    Example: ostta run --orders 10 --method tda

    Example: ostta run --config run.toml --seed 3

    Example: ostta run --scenario frequent --images-per-domain 250 --corruptions snow,fog,jpeg --data DATA
    """
    from ..bench.log import check_log
    from ..bench.scenario import read_scenario
    from ..bench.spec import changed, checked_spec, usual_draw, with_code
    from ..bench.sweep import sweep_of
    from ..config.profiles import apply_profile
    from ..data.class_names import described, parse_classes

    built = read_scenario(
        scenario,
        corruptions=None if corruptions is None else [name.strip() for name in corruptions.split(",")],
        images=images_per_domain,
        speed=speed,
        undesired_corruption=undesired_corruption,
    )
    wanted = apply_profile(profile, method, score, identifier)
    if undesired is not None and undesired_classes is not None:
        raise Error(
            "Give --undesired, another data set, or --undesired-classes, classes of the desired one; not both.",
            code="option-conflict",
        )
    if orders is not None:
        if seeds is not None or draw is not None or seed != 0:
            raise Error(
                "--orders uses the seeds 0, 1, ...; leave out --seed, --seeds and --draw.", code="option-invalid"
            )
        draw = "orders"
    if log is not None:
        check_log(log)
    needs_unknown = ratio > 0 and undesired_classes is None
    known, unknown = _sets(desired, undesired, data, needs_unknown=needs_unknown)
    names, descriptions = (None, ()) if classes is None else described(parse_classes(classes))
    options = parse_values(set_ or [])
    if descriptions and "descriptions" in options:
        raise Error("`descriptions` is given twice: the file of --classes has them too.", code="option-conflict")
    stream: dict[str, Any] = {
        "desired": known,
        "undesired": None if ratio <= 0 else known if undesired_classes is not None else unknown,
        "undesired_classes": None if undesired_classes is None else list(parse_classes(undesired_classes)),
        "limit": limit,
        "scenario": built,
    }
    spec = checked_spec(
        **stream,
        backbone=backbone,
        method=wanted.method,
        score=wanted.score,
        identifier=wanted.identifier,
        profile=profile,
        options={"descriptions": list(descriptions)} if descriptions else {},
        corruption=corruption,
        severity=severity,
        ratio=ratio,
        classes=None if names is None else list(names),
        seed=seed,
        draw=usual_draw(stream) if draw is None else draw,
        guard=guard,
        device=parse_device(device),
        dtype=dtype,
        ahead=ahead,
    )
    several = list(range(orders)) if orders is not None else parse_seeds(seeds)
    sweep = sweep_of(with_code(spec), options, several or [seed])
    if sweep.values or len(sweep.seeds) > 1:
        from .run_several import run_several

        run_several(sweep, data, out, records=records, log=log, workers=workers)
    else:
        _run_one(changed(sweep.spec, seed=sweep.seeds[0]), data, out, records=records, log=log)


def _sets(desired: str | None, undesired: str | None, data: Path | None, *, needs_unknown: bool) -> tuple[str, str]:
    """The data sets; where none is named and there is no folder of data sets, the samples that ship, and that is said."""
    from ..io import ROOT_VARIABLE, data_folder

    samples = data_folder(data) is None
    known = desired or ("sample:cifar10c" if samples else "cifar10c")
    unknown = undesired or ("sample:mnist" if samples else "mnist")
    taken = [name for name, given in ((known, desired), (unknown, undesired or not needs_unknown)) if not given]
    if samples and taken:
        print(
            f"No data folder is given, so the samples that ship stand in: {' and '.join(taken)}. "
            f"Other sets need --data or {ROOT_VARIABLE}, your own images --desired folder:PATH."
        )
    return known, unknown


def _run_one(spec: RunSpec, data: Path | None, out: Path, *, records: bool | None, log: str | None) -> None:
    from ..bench.folder import ResultFolder
    from ..bench.metric_values import METRICS, number
    from ..bench.result import read_result
    from ..bench.run import ensure_result, prepare
    from ..bench.spec import is_frozen, name_of
    from ..bench.tables import HEADINGS, rows
    from .run_progress import progress_line

    prepared = prepare(spec, data)
    for remark in filter(None, prepared.remarks):
        print(remark)
    with progress_line(name_of(spec)) as watch:
        file = ensure_result(prepared, out, keep_records=records, watch=watch, log=log)
    path, result = file.path, read_result(file.path)
    if not file.fresh:
        print("Result reused: the folder has the result of this run on the same stream, weights and classes.")
    frozen = ResultFolder(out, containing=result.stream.hash).frozen_for(result)
    name, cells = rows([result] if frozen is None else [frozen, result])[-1]
    for heading, cell in zip(HEADINGS, (name, *(cell.text for cell in cells)), strict=True):
        none = heading == "ΔHM" and frozen is None and not is_frozen(spec)
        print(
            f"{heading:<10} {cell}{' (no frozen result of this stream here: --method zero_shot makes it)' if none else ''}"
        )
    print("Further measures:")
    for name, value in result.measures.items():
        if value is not None:
            print(f"  {number(value, name):>7} {METRICS[name]}")
    if result.domains:
        print(f"HM of each domain, mean {_percent(result.hm_mean_domains)}:")
        for domain in result.domains:
            print(f"  {_percent(domain.metrics.hm):>6} {domain.name} ({domain.images} images)")
    if result.load is not None and result.load.remark:
        print(result.load.remark)
    print(path)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
