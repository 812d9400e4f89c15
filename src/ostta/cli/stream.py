"""`ostta stream`: a user's own images through an adapter, one JSON line each, with state that survives."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..core.types import Error


def stream(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of images, an image, a text file with one path a line, or - for such a list on stdin."
        ),
    ],
    classes: Annotated[str, typer.Option(help="Class names: a,b,c or a file with one a line.")],
    backbone: Annotated[str, typer.Option(help="embedded, a hub id, a local folder, or onnx:FOLDER.")] = "embedded",
    method: Annotated[str, typer.Option(help="See `ostta ls methods`.")] = "rosita",
    identifier: Annotated[str, typer.Option(help="See `ostta ls identifiers`.")] = "lda",
    profile: Annotated[str, typer.Option(help="reference or paper.")] = "reference",
    seed: Annotated[int, typer.Option(help="Seed of the augmentation.")] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, as often as needed.")] = None,
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
    from ..live.keeping import Keeper, resumed
    from ..live.paths import image_paths, listed_paths
    from ..live.stopping import Stoppable
    from .run import parse_options

    names = parse_classes(classes)
    if source == "-" and sys.stdin is None:
        raise Error("There is no standard input to read paths from.")
    paths = listed_paths(sys.stdin.buffer) if source == "-" else image_paths(source)
    options = parse_options(set_ or [])
    adapter = load(backbone, names, method=method, identifier=identifier, profile=profile, seed=seed, **options)
    if state is not None:
        adapter = resumed(adapter, state)
    keeper, read = Keeper(adapter, state), 0
    with Stoppable(paths) as waiting:
        try:
            for path in waiting:
                try:
                    prediction = adapter.step(path)
                except Error as problem:
                    answer: dict[str, object] = {"error": str(problem)}
                else:
                    read += 1
                    answer = {"step": adapter.steps, **json.loads(prediction.to_json())}
                _say(path, answer)
                keeper.stepped()
        finally:
            keeper.save()
    if not read and not waiting.asked:
        raise Error(f"None of the images in {source} could be read.")


def _say(path: Path, answer: dict[str, object]) -> None:
    from ..files import is_unicode, readable

    name = str(path)
    content = {"image": name, **({} if is_unicode(name) else {"image_bytes": os.fsencode(name).hex()}), **answer}
    ascii_only = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    # Made readable first: an escaped half of a surrogate pair is something that many readers of JSON refuse.
    clean = {key: readable(value) if isinstance(value, str) else value for key, value in content.items()}
    print(json.dumps(clean, ensure_ascii=ascii_only), flush=True)
