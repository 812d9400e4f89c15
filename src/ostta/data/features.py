"""Feature files as data sets: the features stand in for the images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..core.types import Error
from ..feature_files import FeatureFile, features_path, read_features
from .dataset import Dataset

ORIGIN = "features"


class ImageFeatures(Image.Image):
    """The features [D] of an image whose pixels are not available. `Adapter.step` takes it in place of an image.

    >>> import torch
    >>> adapter = ostta.load(ostta.backbones.wrap(None, torch.eye(2)), ["cat", "dog"], "tda")
    >>> adapter.step(ImageFeatures(np.array([0.6, 0.8]))).label
    'dog'
    """

    def __init__(self, values: NDArray[Any]) -> None:
        super().__init__()
        self.values: NDArray[np.float32] = values.astype(np.float32)


def open_features(name: str, root: Path | None, classes: Sequence[str] | None, named: bool) -> Dataset:
    """The images with a class of the feature file called `name`; without `named`, for an undesired side, its unknown images.

    `classes` selects and orders classes of the file. The data set of the unknown images may be empty.
    """
    path = features_path(name, root)
    file = read_features(path)
    note = _note(file, "known" if named else "unknown")
    if not named:
        rows = np.flatnonzero(file.labels < 0)
        label = (path.stem,)
        return Dataset(
            name,
            label,
            np.zeros(len(rows), np.int64),
            ORIGIN,
            note,
            _reader(file, rows),
            layout=str(path),
            condition=file.hash,
        )
    chosen = file.classes if classes is None else tuple(classes)
    missing = [each for each in chosen if each not in file.classes]
    if missing:
        some = ", ".join(file.classes[:5]) + (", ..." if len(file.classes) > 5 else "")
        raise Error(f"'{name}' has no class '{missing[0]}': it has {some or 'no classes'}.")
    new_labels = np.array([chosen.index(each) if each in chosen else -1 for each in file.classes] + [-1], np.int64)
    labels = new_labels[file.labels]
    rows = np.flatnonzero(labels >= 0)
    if not len(rows):
        raise Error(f"'{name}' has no image of a known class: extract one with --desired.")
    return Dataset(name, chosen, labels[rows], ORIGIN, note, _reader(file, rows), layout=str(path), condition=file.hash)


def _reader(file: FeatureFile, rows: NDArray[np.int64]) -> Any:
    return lambda number: ImageFeatures(file.features[rows[number]])


def _note(file: FeatureFile, side: str) -> str:
    """Which encoder and which images the features come from."""
    found = [entry for entry in file.metadata.sets if entry.get("side") == side]
    images = "; ".join(", ".join(filter(None, (str(each.get("name")), each.get("note")))) for each in found)
    return f"features of {file.metadata.backbone}{f' from {images}' if images else ''}"
