"""`ostta sort`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from .options import CLASSES, Ahead, Device, Dtype, Set, load_code
from .stream import Accept, Sort, parse_settings


def sort(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER...", help="Folders, images, 'globs', or text files with one path per line."),
    ],
    classes: Annotated[str, typer.Option(help=CLASSES)],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of predictions.csv and predictions.parquet, with one row per image, of report.html, and of "
            "features.npz. The results of an earlier run are replaced."
        ),
    ],
    backbone: Annotated[
        str,
        typer.Option(
            help="A name of `ostta ls backbones`, a local folder, onnx:FOLDER, file.py:Name, or auto, which is photos "
            "if it knows all class names."
        ),
    ] = "auto",
    device: Device = "auto",
    dtype: Dtype = "float32",
    set_: Set = None,
    accept: Accept = None,
    ahead: Ahead = None,
    sort: Annotated[
        Sort, typer.Option(help="Link or copy each image into OUT/sorted/CLASS or OUT/sorted/unknown.")
    ] = Sort.link,
) -> None:
    """Classify all images of folders at once.

    The command encodes all images, fits to all of them, and then classifies each. No image is undecided, and the
    order of the files does not matter.

    The features of the images are stored in OUT/features.npz. If the command is repeated, with other classes, another
    --accept or more files, it encodes only new and changed files.

    Example: ostta sort photos/ --classes "cat,dog,ship" --out sorted-photos
    """
    from ..data.class_names import parse_classes
    from ..io import readable
    from ..live.inputs import choose_inputs, description, open_outside
    from ..live.memory import Memory
    from ..live.outputs import OutputOptions
    from ..live.sort import sort_files
    from ..live.state_keeper import AdapterSettings
    from ..live.summary import summary
    from ..pages.stream import stream_page
    from .progress import progress_line

    options, began = parse_settings(set_, accept), time.monotonic()
    given, chosen, note = choose_inputs(folders, parse_classes(classes), backbone, None)
    settings = AdapterSettings(classes=given, backbone=load_code(chosen), options=options)
    output = OutputOptions(path=out, page=stream_page, sort=sort.value, replace=True)
    if note:
        typer.echo(note, err=True)
    with open_outside(folders, output) as source, progress_line("images") as watch:
        adapter, digest = sort_files(
            source, settings, output, lambda done, total: watch(done, total, None), device=device, dtype=dtype,
            ahead=ahead, about=description("sort", source, folders),
        )  # fmt: skip
    lines = summary(digest, time.monotonic() - began, memory=Memory.of(adapter))
    lines += [event.sentence for event in source.events]
    print("\n".join(map(readable, [*lines, f"Report: {out / 'report.html'}"])))
