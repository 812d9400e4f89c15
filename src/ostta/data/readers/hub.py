"""Data sets of the `datasets` library, from the hub, its cache, or folders written by `save_to_disk`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.errors import import_extra, translate_errors
from ...core.types import Error
from ..class_names import spoken
from .base import LabelledImages, integer_labels, invalid, read_part, require_folder
from .parquet import IMAGE_COLUMNS, LABEL_COLUMNS

# Splits to use if no split is named, in order of preference.
_PREFERRED = ("test", "validation", "val")


def read_hub(name: str) -> LabelledImages:
    """Read `OWNER/NAME[/CONFIG][:SPLIT]` from the hub cache, or from the hub if it is not cached."""
    library = _library()
    path, _, split = name.partition(":")
    parts = path.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        message = f"'hub:{name}' cannot be read: write hub:OWNER/NAME, hub:OWNER/NAME/CONFIG or either with :SPLIT."
        raise Error(message, code="dataset-unknown")
    unreachable = (
        f"The hub cannot be reached and '{path}' is not in its cache ({{reason}}): "
        "try again with a connection, or give a folder written by `save_to_disk` as disk:PATH."
    )
    with (
        translate_errors("dataset-missing", f"The data set '{path}' cannot be loaded from the hub: {{reason}}."),
        translate_errors("dataset-missing", unreachable, ConnectionError, TimeoutError),
    ):
        loaded = library.load_dataset("/".join(parts[:2]), *parts[2:])
    return _images(library, _select_split(loaded, split, f"hub:{path}"), f"hub:{name}")


def read_disk(name: str) -> LabelledImages:
    """Read `PATH[:SPLIT]`, a folder written by `save_to_disk`."""
    library = _library()
    path, split = disk_folder(name)
    require_folder(path)
    message = f"'{path}' cannot be read as a folder written by `save_to_disk`: {{reason}}."
    with translate_errors("dataset-invalid", message):
        loaded = library.load_from_disk(str(path))
    return _images(library, _select_split(loaded, split, f"disk:{path}"), f"disk:{name}")


def disk_folder(name: str) -> tuple[Path, str]:
    """Split `PATH[:SPLIT]` into the folder and the split, which may be empty."""
    path, split = Path(name).expanduser(), ""
    if not path.exists() and ":" in name:
        head, _, split = name.rpartition(":")
        path = Path(head).expanduser()
    return path, split


def _library() -> Any:
    return import_extra("datasets", "Reading data sets of the hub", "hub")


def _select_split(loaded: Any, split: str, where: str) -> Any:
    """Return the named split; by default the test split or the only split."""
    if not isinstance(loaded, dict):
        if split and str(loaded.split) != split:
            raise Error(f"'{where}' has no splits: remove ':{split}'.", code="dataset-unknown")
        return loaded
    candidates = [split] if split else [*_PREFERRED, *(loaded if len(loaded) == 1 else ())]
    for name in candidates:
        if name in loaded:
            return loaded[name]
    message = f"'{where}' has the splits {', '.join(loaded)}: choose one as {where}:{next(iter(loaded))}."
    raise Error(message, code="dataset-unknown")


def _images(library: Any, table: Any, where: str) -> LabelledImages:
    features = table.features
    image = _column(features, IMAGE_COLUMNS, library.Image)
    label = _column(features, LABEL_COLUMNS, library.ClassLabel)
    if image is None or label is None or not isinstance(features[image], library.Image):
        raise invalid(f"'{where}' has the columns {', '.join(features)}: it needs one of images and one of labels.")
    labels = integer_labels(np.asarray(table.select_columns([label]).with_format("numpy")[:][label]), where)
    encoded = table.select_columns([image]).cast_column(image, library.Image(decode=False))

    def read(i: int) -> Image.Image:
        cell = encoded[i][image]
        return read_part(cell["path"] if cell["bytes"] is None else cell["bytes"], f"Row {i} of '{where}'")

    names = getattr(features[label], "names", None)
    return LabelledImages(labels, read, None if names is None else tuple(spoken(name) for name in names))


def _column(features: Any, names: tuple[str, ...], kind: type) -> str | None:
    """Return the column with one of the usual names, or the first column of this type."""
    usual = [name for name in names if name in features]
    return next(iter([*usual, *(name for name in features if isinstance(features[name], kind))]), None)
