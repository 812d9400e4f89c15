"""`ostta stream`: a user's own images through an adapter, one JSON line each, with state that survives."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from .parsing import DEVICE_HELP, DTYPE_HELP, named_code, parse_options


def stream(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of images, an image, a text file with one path a line, or - for such a list on stdin."
        ),
    ],
    classes: Annotated[str, typer.Option(help="Class names: a,b,c or a file with one a line.")],
    backbone: Annotated[
        str, typer.Option(help="embedded, a hub id, a local folder, onnx:FOLDER, or file.py:Name.")
    ] = "embedded",
    method: Annotated[str, typer.Option(help="See `ostta ls methods`; or file.py:Name of your own.")] = "rosita",
    score: Annotated[
        str | None, typer.Option(help="See `ostta ls scores`; else the one that the identifier needs, or max.")
    ] = None,
    identifier: Annotated[str, typer.Option(help="See `ostta ls identifiers`.")] = "lda",
    profile: Annotated[str, typer.Option(help="reference or paper.")] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of the augmentation.")] = 0,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "float32",
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

    A file name that is not UTF-8 has U+FFFD in the place of what cannot be read, and its bytes, in hex, as image_bytes.

    Example: ostta stream photos/ --classes "cat,dog,ship" --state cats.ostta
    """
    from ..adapter import load
    from ..data.class_names import parse_classes
    from ..live.answers import answers
    from ..live.paths import image_paths
    from ..live.state_keeper import resumed

    names, paths, options = parse_classes(classes), image_paths(source), parse_options(set_ or [])
    fresh = load(
        named_code(backbone),
        names,
        method=named_code(method),
        score=None if score is None else named_code(score),
        identifier=named_code(identifier),
        profile=profile,
        seed=seed,
        device=device,
        dtype=dtype,
        options=options,
    )
    ascii_only = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    with closing(answers(resumed(fresh, state), paths, state, source=source)) as found:
        for answer in found:
            print(json.dumps(answer, ensure_ascii=ascii_only), flush=True)
