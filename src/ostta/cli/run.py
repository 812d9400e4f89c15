"""`ostta run`: one method on one stream, one result file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.types import Error
from .parsing import CLASSES_HELP, DEVICE_HELP, DTYPE_HELP, parse_device, parse_options


def run(
    backbone: Annotated[
        str, typer.Option(help="embedded, a hub id, a local folder, onnx:FOLDER, or file.py:Name.")
    ] = "embedded",
    method: Annotated[
        str | None, typer.Option(help="See `ostta ls methods`; or file.py:Name of your own; else the profile's.")
    ] = None,
    desired: Annotated[str, typer.Option(help="Data set of the known classes; see `ostta ls datasets`.")] = "cifar10c",
    undesired: Annotated[
        str | None, typer.Option(help="Data set of the unknown images; mnist if nothing is said.")
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
    corruption: Annotated[str, typer.Option(help="Applied to every data set whose name ends in c.")] = "snow",
    severity: Annotated[int, typer.Option(help="1 to 5.")] = 5,
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
            help="single, continual, frequent, smooth, ordered, unknown_first, one_class_first, sorted, covered or fooling; or a JSON file of a scenario."
        ),
    ] = "single",
    corruptions: Annotated[
        str | None, typer.Option(help="For continual, frequent and smooth: a,b,c; else the benchmark's.")
    ] = None,
    images_per_domain: Annotated[
        int | None,
        typer.Option(
            help="For frequent: desired images until the corruption changes (100); for unknown_first, one_class_first and covered: "
            "the images of the hostile stretch."
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
    draw: Annotated[
        str | None,
        typer.Option(
            help="What the seed draws: order (of the first N images), or images (which N of the set, as many of each class as "
            "there can be): the default for a set of your own."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "cpu",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "float32",
    profile: Annotated[str, typer.Option(help="reference, paper or field; see `ostta ls profiles`.")] = "reference",
    guard: Annotated[
        bool,
        typer.Option("--guard/--no-guard", help="Watch the method without labels and take back what harms."),
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, as often as needed: --set lr=1e-3; see `ostta ls options`."),
    ] = None,
    classes: Annotated[str | None, typer.Option(help=CLASSES_HELP)] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets; else the variable OSTTA_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the result files.")] = Path("ostta-runs"),
    records: Annotated[
        bool | None,
        typer.Option(
            "--records/--no-records",
            help="Keep the per-image records, as parquet: they are kept unless --no-records is said; --records also makes a result "
            "anew that has none.",
        ),
    ] = None,
) -> None:
    """Run one method on one stream and write one result file; its path is printed last.

    Example: ostta run --method rosita --desired cifar10c --undesired svhn --limit 1000 --data DATA --set losses=re,d

    Example: ostta run --method mine.py:Mine --set weight=0.5 --desired sample:cifar10c --undesired sample:mnist

    Example: ostta run --desired folder:pets --undesired-classes "ferret,parrot" --limit 500

    Example: ostta run --scenario frequent --images-per-domain 250 --corruptions snow,fog,jpeg --data DATA
    """
    from ..bench.own_code import asked
    from ..bench.result import read_result
    from ..bench.run import execute
    from ..bench.scenario import read_scenario
    from ..bench.spec import checked_spec, name_of, usual_draw
    from ..bench.tables.layout import HEADINGS, rows
    from ..data.class_names import described, parse_classes
    from ..profiles import chosen
    from .run_progress import progress_line

    built = read_scenario(
        scenario,
        corruptions=None if corruptions is None else [name.strip() for name in corruptions.split(",")],
        images=images_per_domain,
        speed=speed,
        undesired_corruption=undesired_corruption,
    )
    wanted = chosen(profile, method, score, identifier)
    if undesired is not None and undesired_classes is not None:
        raise Error("Give --undesired, another data set, or --undesired-classes, classes of the desired one; not both.")
    unknown = desired if undesired_classes is not None else undesired or "mnist"
    names, descriptions = (None, ()) if classes is None else described(parse_classes(classes))
    options = parse_options(set_ or [])
    if descriptions and "descriptions" in options:
        raise Error("`descriptions` is given twice: the file of --classes has them too.")
    stream: dict[str, Any] = {
        "desired": desired,
        "undesired": unknown if ratio > 0 else None,
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
        options=options | ({"descriptions": list(descriptions)} if descriptions else {}),
        corruption=corruption,
        severity=severity,
        ratio=ratio,
        classes=None if names is None else list(names),
        seed=seed,
        draw=usual_draw(stream) if draw is None else draw,
        guard=guard,
        device=parse_device(device),
        dtype=dtype,
    )
    prepared = execute.prepare(asked(spec), data)
    for remark in filter(None, prepared.remarks):
        print(remark)
    with progress_line(name_of(spec)) as watch:
        path = execute.ensure_result(prepared, out, keep_records=records, watch=watch).path
    result = read_result(path)
    for heading, cell in zip(HEADINGS, rows([result])[0], strict=True):
        print(f"{heading:<10} {cell}")
    if result.domains:
        print(f"HM of each domain, mean {_percent(result.hm_mean_domains)}:")
        for domain in result.domains:
            print(f"  {_percent(domain.metrics.hm):>6} {domain.name} ({domain.images} images)")
    print(path)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
