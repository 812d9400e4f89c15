"""The inputs of a stream: its sources, and its default classes and backbone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .. import backbones
from ..adapter import Adapter
from ..core.types import Error
from ..data.class_names import Classes, described
from ..feature_files import PREFIX, features_path, read_features
from ..io import readable
from ..sources import Source
from ..sources import open as open_source
from ..sources.files import SkippedFiles
from ..sources.source import Skip
from .answers import LiveStream, open_stream
from .outputs import OutputOptions
from .state_keeper import AdapterSettings


def choose_inputs(
    sources: Sequence[str], classes: Classes | None, backbone: str | None, state: Path | None
) -> tuple[Classes | None, str | None, str]:
    """Return the classes, the backbone and a note about the choice.

    Feature files define their classes and backbone. Otherwise, "auto" and new streams without a backbone use the
    suggested backbone. Values of an existing state file are not selected here.
    """
    is_new = state is None or not state.exists()
    stored = [name for name in sources if name.startswith(PREFIX)]
    if stored and backbone is None:
        backbone = stored[0]
    if backbone is not None and backbone.startswith(PREFIX):
        for name in sources:
            if name not in stored:
                raise Error(
                    f"The backbone {backbone} has no image tower, so it cannot read {readable(name)}.",
                    code="backbone-without-tower",
                )
        if classes is None and is_new:
            classes = list(read_features(features_path(backbone)).classes)
    if not classes or not (backbone == backbones.AUTO or (backbone is None and is_new)):
        return classes, backbone, ""
    names, descriptions = described(classes)
    suggestion = backbones.suggest(names, described=bool(descriptions))
    return classes, suggestion.backbone, f"Backbone {suggestion.backbone}: {suggestion.reason}."


def check_features(sources: Sequence[str], adapter: Adapter) -> None:
    """Raise an Error if a feature file among `sources` does not fit the backbone or the method of `adapter`."""
    for name in sources:
        if name.startswith(PREFIX):
            file = read_features(features_path(name))
            file.require_encoder(name, adapter.backbone, adapter.features_suffice, adapter.method_name)


def open_outside(
    sources: Sequence[str], output: OutputOptions | None, knows: Skip | None = None, **options: Any
) -> Source:
    """Open the sources without the pictures of the output folder, and without the items that `knows` selects.

    Raise an Error if a source is in the output folder. `options` are those of `ostta.sources.open`.
    """
    for name in sources:
        if output is not None and output.contains_picture(os.path.join(name, "")):
            raise Error(
                f"{readable(name)} is in the output folder {output.path}, so the stream would process its own output: "
                "give another --out.",
                code="output-mismatch",
            )
    own = SkippedFiles()

    def skip(key: str) -> bool:
        if output is None or not output.contains_picture(key.rsplit("|", 2)[0]):
            return knows is not None and knows(key)
        if not own.outputs:
            own.outputs.add(str(output.path))
            own.report(source)
        return True

    source = open_source(*sources, skip=skip, **options)
    return source


def description(command: str, source: Source, sources: Sequence[str]) -> dict[str, Any]:
    """Return the title of the page, and the sources."""
    return {"title": f"ostta {command}: {readable(source.name)}", "sources": [readable(name) for name in sources]}


@contextmanager
def open_inputs(
    sources: Sequence[str],
    settings: AdapterSettings,
    state: Path | None = None,
    output: OutputOptions | None = None,
    *,
    every: int = 1,
    follow: bool = False,
    **options: Any,
) -> Iterator[tuple[LiveStream, Source]]:
    """Open the sources and a stream that skips their processed images; `options` are those of `open_stream`."""
    if output is not None and (output.sort is not None or output.draw):
        for name in sources:
            if name.startswith(PREFIX):
                raise Error(f"--sort and --draw need images, but {name} has only features.", code="images-missing")
    streams: list[LiveStream] = []
    # The source asks which images to skip only after the stream is open.
    source = open_outside(sources, output, lambda key: streams[0].journal.knows(key), every=every, follow=follow)
    about = description("stream", source, sources)
    check = partial(check_features, sources)
    with source, open_stream(settings, state, output, about=about, check=check, **options) as live:
        streams.append(live)
        yield live, source
