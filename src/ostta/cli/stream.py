"""`ostta stream`: a user's own images through an adapter, one JSON line each, with state that survives."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..io import readable
from .options import CLASSES_HELP, Device, Dtype, named_code, parse_options

if TYPE_CHECKING:
    from ..adapter import Adapter
    from ..data.class_names import Classes


class Sort(StrEnum):
    """How images are put into the folder of their answer."""

    copy = "copy"
    link = "link"


def stream(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Images, folders, 'globs', text files with one path a line, - for such a list on stdin, tar archives, videos, "
            "a camera's number, rtsp:// or http(s):// addresses, features:FILE.",
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
        str | None,
        typer.Option(
            help="photos, embedded, a hub id, a local folder, onnx:FOLDER, features:FILE (the default for such a source), file.py:Name, "
            "or auto (the default without a state file): photos if it knows all class names, else embedded."
        ),
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
    device: Device = "auto",
    dtype: Dtype = "float32",
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
    accept: Annotated[
        list[str] | None,
        typer.Option(
            help='Smallest probability that the image is known with which it is answered as a class, such as 0.8, or "person: 0.9" for '
            "one class; as often as needed. 0.5 if not given."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="State file: gone on with where it exists, with the next image that was not judged yet, as its journal (STATE.journal) "
            "knows; saved after the first image, then every minute (more rarely where saving would take more than a twentieth of the "
            "time) or after --save-every images, whichever comes first, at the end, and on SIGTERM and Ctrl-C, which wait for the save."
        ),
    ] = None,
    save_every: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, help="Images after which the state is saved: so many a crash repeats at most."
        ),
    ] = 100,
    ahead: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_024,
            help="Images that are encoded in one batch before they are decided one after the other: 16 if not given, 1 to turn it off. "
            "Has no effect on live sources, followed folders and standard input, nor on methods that train the image tower.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for predictions.csv and .parquet (one row an image) and report.html, a page about the stream. With --state "
            "it is gone on with after a stop."
        ),
    ] = None,
    sort: Annotated[
        Sort | None,
        typer.Option(
            help='Also put each image into OUT/sorted/ANSWER/, as a copy or a link. `unknown` is the folder of "I don\'t know", `undecided` '
            "that of images that came before enough images had been seen."
        ),
    ] = None,
    draw: Annotated[
        bool,
        typer.Option("--draw", help="Also write each image with its answer below it to OUT/drawn/, the last 10,000."),
    ] = False,
    panel: Annotated[
        bool,
        typer.Option(
            "--panel/--no-panel",
            help="A live panel on stderr, with the last answers below it in place of JSON lines if stdout is a terminal too. There is no "
            "panel if stderr is not a terminal, or if stdout is a pipe.",
        ),
    ] = True,
) -> None:
    """Judge images one after the other, adapting on the way; one JSON line for each on stdout, or one short line on a terminal.

    With a state file that exists, what is not named on the command line comes from there, and what is named must be the same.
    An image counts once for a state: one that was judged before, the same path with the same size and time, is left out.

    A line is printed as soon as it is known. `row` counts the images of a state; after a crash, those since the last save come again with
    the same `row`, and the last line of a row is the one that counts.

    A file name that is not UTF-8 has U+FFFD in the place of what cannot be read, and its bytes, in hex, as image_bytes.

    Example: ostta stream photos/ --classes "cat,dog,ship" --state cats.ostta --out cats

    Example: ostta stream features:cats.npz --method tda
    """
    from ..core.types import Error
    from ..data.class_names import parse_classes
    from ..feature_files import PREFIX as FEATURES
    from ..feature_files import features_path, read_features
    from ..live import outputs
    from ..live.answers import LiveStream, open_stream
    from ..live.state_keeper import Wanted
    from ..pages.stream import stream_page
    from ..sources import open as open_source
    from .stream_output import shown

    if out is None and (sort is not None or draw):
        raise Error("--sort and --draw write to a folder: name it with --out.", code="option-missing")
    named: list[str] | None = None
    stored = [name for name in sources if name.startswith(FEATURES)]
    if stored and (sort is not None or draw):
        raise Error(f"--sort and --draw need images, and {stored[0]} has features alone.", code="images-missing")
    if stored and backbone is None:
        backbone = stored[0]
    if backbone is not None and backbone.startswith(FEATURES):
        images = next((name for name in sources if name not in stored), None)
        if images is not None:
            raise Error(
                f"The backbone {backbone} has no image tower, so it cannot read {readable(images)}.",
                code="backbone-without-tower",
            )
        if classes is None and (state is None or not state.exists()):
            named = list(read_features(features_path(backbone)).classes)
    given = named if classes is None else parse_classes(classes)
    if given and (backbone == "auto" or (backbone is None and (state is None or not state.exists()))):
        backbone = _chosen_backbone(given, required=backbone is not None)
    wanted = Wanted(
        classes=given,
        backbone=named_code(backbone),
        method=named_code(method),
        score=named_code(score),
        identifier=named_code(identifier),
        profile=profile,
        seed=seed,
        guard=guard,
        options=_options(set_ or [], accept or []),
    )

    def check(adapter: Adapter) -> None:
        for name in stored:
            file = read_features(features_path(name))
            file.require_encoder(name, adapter.backbone, adapter.features_suffice, adapter.method_name)

    opened: list[LiveStream] = []
    # Asked only when images are, and then the stream is open.
    source = open_source(*sources, every=every, follow=follow, skip=lambda key: opened[0].journal.knows(key))
    output = (
        None
        if out is None
        else outputs.Wanted(path=out, page=stream_page, sort=None if sort is None else sort.value, draw=draw)
    )
    about = {"title": f"ostta stream: {readable(source.name)}", "sources": [readable(name) for name in sources]}
    with (
        source,
        open_stream(
            wanted,
            state,
            output,
            device=device,
            dtype=dtype,
            save_every=save_every,
            ahead=ahead,
            about=about,
            check=check,
        ) as live,
    ):
        opened.append(live)
        shown(live, source, panel=panel)


def _chosen_backbone(classes: Classes, required: bool) -> str | None:
    """The backbone that knows the classes, with the reason on a terminal; None if there is none and it is not `required`."""
    from .. import backbones
    from ..core.types import Error
    from ..data.class_names import described

    names, descriptions = described(classes)
    try:
        found = backbones.suggest(names, described=bool(descriptions))
    except Error:
        if required:
            raise
        return None
    if sys.stderr.isatty():
        typer.echo(f"Backbone {found.backbone}: {found.reason}.", err=True)
    return found.backbone


def _options(pairs: list[str], accept: list[str]) -> dict[str, Any]:
    """The values of `--set` and `--accept` by name."""
    from ..core.types import Error

    options = parse_options(pairs)
    if accept and {"accept", "adapter.accept"} & options.keys():
        raise Error("`accept` is given twice, by --accept and by --set: use one of them.", code="option-conflict")
    return {**options, "accept": accept} if accept else options
