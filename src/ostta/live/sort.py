"""`ostta sort`: classify all files of folders at once, and write the answers to a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..adapter import Adapter
from ..core.types import Error
from ..data.views import FeaturesOnly
from ..feature_files import Metadata, read_features, write_features
from ..lookahead import DEFAULT_AHEAD, image_of, look_ahead
from ..sources import Item, Source
from ..sources.files import FEATURES
from ..step import unseen_reason
from .answers import with_name
from .digest import Digest
from .journal import Journal
from .memory import Memory
from .outputs import OutputFolder, OutputOptions, check_unused
from .outputs.record import foreign
from .state_keeper import AdapterSettings, open_adapter

Halves = NDArray[np.float16]
Watch = Callable[[int, int], object]


def sort_files(
    source: Source,
    settings: AdapterSettings,
    output: OutputOptions,
    watch: Watch,
    *,
    device: str | None = None,
    dtype: str | None = None,
    ahead: int | None = None,
    about: dict[str, Any] | None = None,
) -> tuple[Adapter, Digest]:
    """Classify the files of `source` at once and write the answers; return the adapter and a summary.

    Features are stored in `features.npz` in the output folder, so that only new and changed files are encoded by the
    next run with the same backbone. `watch` receives the numbers of encoded images and of all images.
    """
    check_unused(output)
    items = _files(source)
    adapter = open_adapter(settings, None, device, dtype)
    images = _encoded(adapter, items, output.path / FEATURES, ahead or DEFAULT_AHEAD, watch)
    if all(isinstance(image, str) for image in images):
        raise Error(f"None of the images in {source.name} could be read.", code="image-unreadable")
    predictions = adapter.pipeline.step_all(images)
    described = {**(about or {}), **adapter.describe(), "unfamiliar": adapter.unfamiliar}
    with closing(Journal.temporary()) as journal:
        memory, accept = Memory.of(adapter), adapter.acceptance.common
        folder = OutputFolder(output, journal, adapter.classes, described, lambda: memory, accept)
        for item, image, prediction in zip(items, images, predictions, strict=True):
            unread = isinstance(image, str)
            answer = {"error": image} if unread else {"step": adapter.steps, **json.loads(prediction.to_json())}
            path = None if unread else item.path
            folder.show(journal.add(adapter.steps, item.key, path, with_name(item, answer)), None)
        journal.write(adapter.steps)
        folder.write_rows()
        folder.finish()
    return adapter, folder.digest


def _files(source: Source) -> list[Item]:
    """Return the files of a source by path, each once."""
    items: dict[str, Item] = {}
    for item in source:
        if item.problem is None and (item.path is None or item.frame is not None):
            raise Error(
                f"`ostta sort` reads image files, and {item.name} is not a file: use `ostta stream` for videos, "
                "cameras, archives and addresses.",
                code="source-unknown",
            )
        items[item.key or item.name] = item
    return sorted(items.values(), key=lambda item: item.name)


def _encoded(adapter: Adapter, items: Sequence[Item], path: Path, ahead: int, watch: Watch) -> list[FeaturesOnly | str]:
    """Return the features of each file; the reason if it cannot be read. Features that are stored are read."""
    names = [_identity(item, path.parent) for item in items]
    stored, problems = _stored(path, adapter), dict[str, str]()
    rows = {name: stored[name] for name in names if name in stored}
    new = {name: item for name, item in zip(names, items, strict=True) if name not in rows}
    watch(len(items) - len(new), len(items))
    try:
        upcoming = look_ahead(adapter, new.values(), image_of, ahead)
        for number, (name, image) in enumerate(zip(new, upcoming, strict=True), 1):
            encoded = image.encoded()
            problem = encoded if isinstance(encoded, str) else unseen_reason(encoded.features)
            if isinstance(encoded, FeaturesOnly) and problem is None:
                rows[name] = encoded.features.cpu().numpy().astype(np.float16)
            if problem is not None:
                problems[name] = problem
            watch(len(items) - len(new) + number, len(items))
    finally:
        # Also after Ctrl-C, so that the next run encodes the remaining files only.
        if rows and rows.keys() != stored.keys():
            _store(path, adapter, rows)
    only = adapter.pipeline.features_only
    return [problems.get(name) or only(torch.from_numpy(rows[name].astype(np.float32))) for name in names]


def _identity(item: Item, folder: Path) -> str:
    """Return the path of a file relative to the output folder, so that both can be moved, with its size and time."""
    size_and_time = item.key.split("|")[-2:]
    path = os.path.relpath(item.path or item.name, folder)
    return "|".join([os.fsencode(path).decode(errors="backslashreplace"), *size_and_time])


def _stored(path: Path, adapter: Adapter) -> dict[str, Halves]:
    """Return the stored features by identity of the file, if they were computed with the backbone of `adapter`."""
    if not os.path.lexists(path):
        return {}
    file = read_features(path)
    stored = next((entry for entry in file.metadata.sets if "files" in entry), None)
    if stored is None:
        raise foreign(path)
    same = stored.get("encoder") == _encoder(adapter)
    return dict(zip(stored["files"], file.features, strict=True)) if same else {}


def _encoder(adapter: Adapter) -> list[str]:
    """Return everything that features depend on, apart from the image."""
    backbone = adapter.backbone
    return [backbone.id, backbone.weight_hash, str(backbone.preprocessing), str(backbone.dtype)]


def _store(path: Path, adapter: Adapter, rows: dict[str, Halves]) -> None:
    write_features(
        path,
        np.stack(list(rows.values())),
        np.full(len(rows), -1),
        adapter.classes,
        adapter.classifier.detach().float().cpu().numpy(),
        float(adapter.backbone.logit_scale),
        Metadata(
            adapter.backbone.id,
            adapter.backbone.weight_hash,
            sets=({"files": list(rows), "encoder": _encoder(adapter)},),
        ),
    )
