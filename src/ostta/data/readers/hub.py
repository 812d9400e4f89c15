"""Data sets through the `datasets` library: from the hub or its cache, and folders made by `save_to_disk`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.types import Error
from ..class_names import spoken
from ..images import read_image
from .labelled import Images
from .parquet import IMAGE_COLUMNS, LABEL_COLUMNS

# Which split to take where none was named, the first that there is.
_PREFERRED = ("test", "validation", "val")


def read_hub(name: str) -> Images:
    """`OWNER/NAME[/CONFIG][:SPLIT]` from the hub, or from its cache where that has it."""
    library = _library()
    path, _, split = name.partition(":")
    parts = path.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise Error(f"'hub:{name}' cannot be read: write hub:OWNER/NAME, hub:OWNER/NAME/CONFIG or either with :SPLIT.")
    try:
        loaded = library.load_dataset("/".join(parts[:2]), *parts[2:])
    except (ConnectionError, TimeoutError) as problem:
        raise Error(
            f"The hub cannot be reached and '{path}' is not in its cache ({_first_line(problem)}): "
            "try again with a connection, or give a folder made by `save_to_disk` as disk:PATH."
        ) from problem
    except Exception as problem:  # The library and the hub raise dozens of kinds; each has its own sentence.
        raise Error(f"The data set '{path}' cannot be loaded from the hub: {_first_line(problem)}.") from problem
    return _images(library, _chosen(loaded, split, f"hub:{path}"), f"hub:{name}")


def read_disk(name: str) -> Images:
    """`PATH[:SPLIT]`: what `save_to_disk` of the library wrote."""
    library = _library()
    path, split = disk_folder(name)
    if not path.is_dir():
        raise Error(f"There is no folder '{path}'.")
    try:
        loaded = library.load_from_disk(str(path))
    except Exception as problem:
        raise Error(f"'{path}' cannot be read as a folder made by `save_to_disk`: {_first_line(problem)}.") from problem
    return _images(library, _chosen(loaded, split, f"disk:{path}"), f"disk:{name}")


def disk_folder(name: str) -> tuple[Path, str]:
    """Split `PATH[:SPLIT]` into the folder and the split, which is empty if none is named."""
    path, split = Path(name).expanduser(), ""
    if not path.exists() and ":" in name:
        head, _, split = name.rpartition(":")
        path = Path(head).expanduser()
    return path, split


def _library() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as problem:
        raise Error(
            'Data sets from the hub need the library datasets: install it with `pip install "ostta[hub]"`.'
        ) from problem


def _chosen(loaded: Any, split: str, where: str) -> Any:
    """The split asked for, else the test split, else the only one."""
    if not isinstance(loaded, dict):
        if split and str(loaded.split) != split:
            raise Error(f"'{where}' has no splits to choose from: leave ':{split}' away.")
        return loaded
    wanted = [split] if split else [*_PREFERRED, *(loaded if len(loaded) == 1 else ())]
    for name in wanted:
        if name in loaded:
            return loaded[name]
    raise Error(f"'{where}' has the splits {', '.join(loaded)}: choose one as {where}:{next(iter(loaded))}.")


def _images(library: Any, table: Any, where: str) -> Images:
    features = table.features
    image = _column(features, IMAGE_COLUMNS, library.Image)
    label = _column(features, LABEL_COLUMNS, library.ClassLabel)
    if image is None or label is None or not isinstance(features[image], library.Image):
        raise Error(f"'{where}' has the columns {', '.join(features)}: it needs one of images and one of labels.")
    if not len(table):
        raise Error(f"'{where}' holds no images.")
    labels = np.asarray(table.select_columns([label]).with_format("numpy")[:][label])
    if not np.issubdtype(labels.dtype, np.integer):
        raise Error(f"The labels in '{where}' must be whole numbers, one for each image.")
    encoded = table.select_columns([image]).cast_column(image, library.Image(decode=False))

    def read(i: int) -> Image.Image:
        cell = encoded[i][image]
        try:
            return read_image(cell["bytes"] if cell["bytes"] is not None else cell["path"])
        except Error as problem:
            raise Error(f"Row {i} of '{where}': {problem}") from problem

    names = getattr(features[label], "names", None)
    return Images(np.array(labels, np.int64), read, None if names is None else tuple(spoken(name) for name in names))


def _column(features: Any, wanted: tuple[str, ...], kind: type) -> str | None:
    """A column by its usual name, else the first one of the right kind."""
    named = [name for name in wanted if name in features]
    return next(iter([*named, *(name for name in features if isinstance(features[name], kind))]), None)


def _first_line(problem: Exception) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0].rstrip(".")
