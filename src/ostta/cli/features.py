"""`ostta features`: encode images once, and study everything else on their features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.types import Error
from .options import (
    Classes,
    Corruption,
    Data,
    Device,
    Dtype,
    Severity,
    Template,
    parse_device,
)

app = typer.Typer(help="Image features as data.", no_args_is_help=True)


@app.callback()
def _features() -> None:
    pass


@app.command()
def extract(
    out: Annotated[Path, typer.Option(help="The feature file to write, FILE.npz; features:FILE.npz is its name.")],
    backbone: Annotated[
        str, typer.Option(help="embedded, a hub id, a local folder, onnx:FOLDER, or file.py:Name.")
    ] = "embedded",
    desired: Annotated[str | None, typer.Option(help="Data set of the known classes; see `ostta ls datasets`.")] = None,
    undesired: Annotated[str | None, typer.Option(help="Data set of the unknown images.")] = None,
    classes: Classes = None,
    words: Annotated[
        str | None,
        typer.Option(help="Names of things that are not the classes, to store their embeddings too: a,b,c or a file."),
    ] = None,
    template: Template = None,
    corruption: Corruption = "snow",
    severity: Severity = 5,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="At most N images of each side: the first, or of a set of your own some of each class."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the corruption, and of the images that --limit draws.")] = 0,
    half: Annotated[bool, typer.Option("--half", help="Store float16 in place of float32: half the size.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Images in one pass of the image tower.")] = 32,
    device: Device = "auto",
    dtype: Dtype = "float32",
    data: Data = None,
) -> None:
    """Write the features of images, their labels and the embeddings of the classes to one file.

    A stopped extraction resumes with the same command. Runs, suites and streams take the file as a data set and as a backbone.

    Example: ostta features extract --desired sample:cifar10c --undesired sample:mnist --out snow.npz

    Example: ostta run --backbone features:snow.npz --desired features:snow.npz --undesired features:snow.npz --method tda
    """
    from ..backbones import DEFAULT_TEMPLATES
    from ..bench.extract import extract as extracted
    from ..bench.spec import checked_spec, with_code
    from ..data.class_names import described, parse_classes
    from .run_progress import progress_line

    if desired is None and undesired is None:
        raise Error(
            "Name the images to encode: --desired for known classes, --undesired for unknown images, or both.",
            code="option-missing",
        )
    names, descriptions = (None, ()) if classes is None else described(parse_classes(classes))
    others, more = ((), ()) if words is None else described(parse_classes(words))
    if descriptions or more:
        raise Error(
            "A feature file has embeddings of names in templates: give the names without descriptions.",
            code="descriptions-unsupported",
        )
    spec = with_code(
        checked_spec(
            backbone=backbone,
            method="zero_shot",
            desired=desired or undesired,
            undesired=undesired,
            corruption=corruption,
            severity=severity,
            limit=limit,
            classes=None if names is None else list(names),
            seed=seed,
            device=parse_device(device),
            dtype=dtype,
        )
    )
    with progress_line("images") as watch:
        file = extracted(
            spec,
            data,
            out,
            known=desired is not None,
            templates=tuple(template or DEFAULT_TEMPLATES),
            words=others,
            half=half,
            batch=batch,
            watch=watch,
        )
    known = int((file.labels >= 0).sum())
    unknown = len(file.labels) - known
    print(f"Features of {known} known and {unknown} unknown images, {file.width} numbers each: features:{out}")
