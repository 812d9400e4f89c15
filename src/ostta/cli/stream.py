"""`ostta stream`: a user's own images through an adapter, one JSON line each, with state that survives."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from .parsing import CLASSES_HELP, DEVICE_HELP, DTYPE_HELP, named_code, parse_options


def stream(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Images, folders, 'globs', text files with one path a line, - for such a list on stdin, tar archives, videos, "
            "a camera's number, rtsp:// or http(s):// addresses.",
        ),
    ],
    every: Annotated[int, typer.Option(help="One frame in so many of a video, a camera or a live address.")] = 1,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Wait for new images in the folders that are named, until Ctrl-C or SIGTERM."),
    ] = False,
    classes: Annotated[
        str | None,
        typer.Option(help=f"{CLASSES_HELP} A state that exists has them already."),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="embedded (the default), a hub id, a local folder, onnx:FOLDER, or file.py:Name.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="See `ostta ls methods`; or file.py:Name of your own.")] = None,
    score: Annotated[str | None, typer.Option(help="See `ostta ls scores`; or file.py:Name.")] = None,
    identifier: Annotated[str | None, typer.Option(help="See `ostta ls identifiers`; or file.py:Name.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="field (what we recommend; the default where no method, score or identifier is named), reference or paper."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the augmentation, 0 if not given.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "float32",
    guard: Annotated[
        bool | None,
        typer.Option(
            "--guard/--no-guard",
            help="Watch the method without labels and take back what harms; on, where no state file says otherwise.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as often as needed; see `ostta ls options`.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="State file: resumed where it exists; saved after the first image, then every second or every 200 "
            "images, whichever comes first (more rarely where saving would take more than a twentieth of the time), at "
            "the end, and on SIGTERM and Ctrl-C, which wait for the save."
        ),
    ] = None,
) -> None:
    """Judge images one after the other, adapting on the way; one JSON line for each on stdout.

    With a state file that exists, what is not named on the command line comes from there, and what is named must be the same.

    A file name that is not UTF-8 has U+FFFD in the place of what cannot be read, and its bytes, in hex, as image_bytes.

    Example: ostta stream photos/ --classes "cat,dog,ship" --state cats.ostta
    """
    from ..data.class_names import parse_classes
    from ..live.answers import answers
    from ..live.state_keeper import Wanted, opened
    from ..sources import open as open_source

    wanted = Wanted(
        classes=None if classes is None else parse_classes(classes),
        backbone=named_code(backbone),
        method=named_code(method),
        score=named_code(score),
        identifier=named_code(identifier),
        profile=profile,
        seed=seed,
        guard=guard,
        options=parse_options(set_ or []),
    )
    source = open_source(*sources, every=every, follow=follow)
    adapter = opened(wanted, state, device, dtype)
    ascii_only = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    with source, closing(answers(adapter, source, state)) as found:
        for answer in found:
            print(json.dumps(answer, ensure_ascii=ascii_only), flush=True)
