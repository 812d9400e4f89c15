"""`ostta stream`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.types import Error
from .options import (
    CLASSES,
    Ahead,
    Device,
    Dtype,
    Guard,
    Identifier,
    Method,
    Score,
    Set,
    load_code,
    parse_options,
)


class Sort(StrEnum):
    """How images are sorted into folders."""

    copy = "copy"
    link = "link"


Accept = Annotated[
    list[str] | None,
    typer.Option(
        help='Minimum probability of being known at which an image is assigned a class, such as 0.8, or "person: '
        '0.9" for one class; repeat it for several classes.  [default: 0.5]'
    ),
]


def parse_settings(set_: list[str] | None, accept: list[str] | None) -> dict[str, Any]:
    """Return the options by name; an Error if `accept` is given twice."""
    options = parse_options(set_ or [])
    if accept and {"accept", "adapter.accept"} & options.keys():
        raise Error("`accept` is given twice, by --accept and by --set: use one of them.", code="option-conflict")
    return {**options, **({"accept": accept} if accept else {})}


def stream(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Images, folders, 'globs', text files with one path per line, - for such a list on stdin, tar "
            "archives, videos, the number of a camera, rtsp:// or http(s):// addresses, or features:FILE.",
        ),
    ],
    every: Annotated[int, typer.Option(help="Process every N-th frame of a video, a camera or a live address.")] = 1,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new images in the folders, until Ctrl-C or SIGTERM.")
    ] = False,
    classes: Annotated[str | None, typer.Option(help=f"{CLASSES} An existing state file has the classes.")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="A name of `ostta ls backbones`, a local folder, onnx:FOLDER, features:FILE, file.py:Name, or auto, "
            "which is photos. Default: that of the state file, otherwise auto."
        ),
    ] = None,
    method: Method = None,
    score: Score = None,
    identifier: Identifier = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Default components and options: field (recommended), reference or paper. Default: field, or "
            "reference if a method, score or identifier is named."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the augmentation.  [default: 0]")] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    guard: Guard = None,
    set_: Set = None,
    accept: Accept = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="State file. If it exists, the stream resumes after the last processed image. The file is saved after "
            "the first image, every minute or --save-every images, at the end, and on SIGTERM and Ctrl-C."
        ),
    ] = None,
    save_every: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, help="Images between two saves: at most this many are processed again after a crash."
        ),
    ] = 100,
    ahead: Ahead = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of predictions.csv and predictions.parquet, with one row per image, and of report.html. With "
            "--state, an interrupted stream continues the same files."
        ),
    ] = None,
    sort: Annotated[
        Sort | None,
        typer.Option(
            help="Also copy or link each image into OUT/sorted/CLASS, OUT/sorted/unknown or OUT/sorted/undecided."
        ),
    ] = None,
    draw: Annotated[
        bool, typer.Option("--draw", help="Also write the last 10,000 images to OUT/drawn, with the answer below each.")
    ] = False,
    panel: Annotated[
        bool,
        typer.Option(
            "--panel/--no-panel",
            help="Show a live panel on stderr if it is a terminal and stdout is not a pipe. If stdout is a terminal "
            "too, the last answers are printed below the panel instead of JSON lines.",
        ),
    ] = True,
) -> None:
    """Classify your own images one by one.

    The command rejects unknown images and adapts to the stream. Each image gives one JSON line on stdout, or a short
    line on a terminal.

    With an existing state file, settings that are not given come from the file, and given ones must be the same. An
    image counts once per state: a file that was processed before, with the same path, size and time, is skipped.

    `row` numbers the images of a state. After a crash, images since the last save are processed again with the same
    `row`; the last line of a row is valid.

    A file name that is not UTF-8 is printed with U+FFFD for undecodable bytes, and in hex as `image_bytes`.

    Example: ostta stream photos/ --classes "cat,dog,ship" --state cats.ostta --out cats

    Example: ostta stream features:cats.npz --method tda
    """
    from ..data.class_names import parse_classes
    from ..live.inputs import choose_inputs, open_inputs
    from ..live.outputs import OutputOptions
    from ..live.state_keeper import AdapterSettings
    from ..pages.stream import stream_page
    from .stream_output import show_stream

    if (sort is not None or draw) and out is None:
        raise Error("--sort and --draw write to a folder: name it with --out.", code="option-missing")
    options = parse_settings(set_, accept)
    given, chosen, note = choose_inputs(sources, None if classes is None else parse_classes(classes), backbone, state)
    settings = AdapterSettings(
        classes=given,
        backbone=load_code(chosen),
        method=load_code(method),
        score=load_code(score),
        identifier=load_code(identifier),
        profile=profile,
        seed=seed,
        guard=guard,
        options=options,
    )
    output = None
    if out is not None:
        output = OutputOptions(path=out, page=stream_page, sort=None if sort is None else sort.value, draw=draw)
    with open_inputs(
        sources, settings, state, output, every=every, follow=follow, device=device, dtype=dtype,
        save_every=save_every, ahead=ahead,
    ) as (live, source):  # fmt: skip
        if note:
            typer.echo(note, err=True)
        if not follow and any(map(os.path.isdir, sources)):
            typer.echo("`ostta sort` classifies a folder at once: the order of its images does not matter.", err=True)
        show_stream(live, source, panel=panel)
