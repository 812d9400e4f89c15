"""`ostta features extract`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.types import Error
from .options import (
    Backbone,
    Classes,
    Corruption,
    Data,
    Device,
    Dtype,
    Seed,
    Severity,
    Template,
    parse_device,
    parse_names,
)


def extract(
    out: Annotated[
        Path, typer.Option(help="The feature file to write, FILE.npz. Commands read it as features:FILE.npz.")
    ],
    backbone: Backbone = "embedded",
    desired: Annotated[str | None, typer.Option(help="Data set of the known classes; see `ostta ls datasets`.")] = None,
    undesired: Annotated[str | None, typer.Option(help="Data set of the unknown images.")] = None,
    classes: Classes = None,
    words: Annotated[
        str | None,
        typer.Option(help="Names of things that are not classes, whose embeddings are stored too: a,b,c or a file."),
    ] = None,
    template: Template = None,
    corruption: Corruption = "snow",
    severity: Severity = 5,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of known and of unknown images: the first ones, or a sample of each class for "
            "your own data sets.",
        ),
    ] = None,
    seed: Seed = 0,
    half: Annotated[bool, typer.Option("--half", help="Store float16 instead of float32, in half the size.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Number of images in one pass of the image tower.")] = 32,
    device: Device = "auto",
    dtype: Dtype = "float32",
    data: Data = None,
) -> None:
    """Write image features, labels and class embeddings to one file.

    Runs, suites and streams accept the file as a data set and as a backbone. An interrupted extraction resumes if the
    command is repeated.

    Example: ostta features extract --desired sample:cifar10c --undesired sample:mnist --out snow.npz

    Example: ostta run --backbone features:snow.npz --desired features:snow.npz --undesired features:snow.npz
    --method tda
    """
    from ..backbones import DEFAULT_TEMPLATES
    from ..bench.extract import extract as extract_features
    from ..bench.spec import checked_spec, with_code
    from .progress import progress_line

    if desired is None and undesired is None:
        raise Error(
            "No images are named: give --desired for known classes, --undesired for unknown images, or both.",
            code="option-missing",
        )
    spec = checked_spec(
        backbone=backbone,
        method="zero_shot",
        desired=desired or undesired,
        undesired=undesired,
        corruption=corruption,
        severity=severity,
        limit=limit,
        classes=None if classes is None else list(parse_names(classes)),
        seed=seed,
        device=parse_device(device),
        dtype=dtype,
    )
    with progress_line("images") as watch:
        file = extract_features(
            with_code(spec),
            data,
            out,
            known=desired is not None,
            templates=tuple(template or DEFAULT_TEMPLATES),
            words=() if words is None else parse_names(words),
            half=half,
            batch=batch,
            watch=watch,
        )
    known = int((file.labels >= 0).sum())
    unknown = len(file.labels) - known
    print(f"Features of {known} known and {unknown} unknown images, {file.width} numbers each: features:{out}")
