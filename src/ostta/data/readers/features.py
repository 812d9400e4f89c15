"""Feature files as data sets of features instead of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core.text import shortened
from ...feature_files import FeatureFile, features_path, read_features
from ..dataset import Dataset
from ..images import ImageFeatures
from .base import invalid

__all__ = ["ORIGIN", "ImageFeatures", "open_features"]

ORIGIN = "features"


def open_features(name: str, root: Path | None, classes: Sequence[str] | None, named: bool) -> Dataset:
    """Open the known images of the feature file `name`, or its unknown images if `named` is False.

    `classes` selects and orders the classes of the file. The data set of unknown images may be empty.
    """
    path = features_path(name, root)
    file = read_features(path)
    if named:
        names = file.classes if classes is None else tuple(classes)
        missing = [each for each in names if each not in file.classes]
        if missing:
            raise invalid(f"'{name}' has no class '{missing[0]}': it has {shortened(file.classes, 5) or 'no classes'}.")
        new_labels = np.array([names.index(each) if each in names else -1 for each in file.classes] + [-1], np.int64)
        labels = new_labels[file.labels]
        rows = np.flatnonzero(labels >= 0)
        if not len(rows):
            raise invalid(f"'{name}' has no image of a known class: extract one with --desired.")
        labels = labels[rows]
    else:
        rows = np.flatnonzero(file.labels < 0)
        names, labels = (path.stem,), np.zeros(len(rows), np.int64)
    return Dataset(
        name,
        names,
        labels,
        ORIGIN,
        _note(file, "known" if named else "unknown"),
        lambda number: ImageFeatures(file.features[rows[number]]),
        layout=str(path),
        condition=file.hash,
        rows=rows.tolist(),
    )


def _note(file: FeatureFile, side: str) -> str:
    """Describe the encoder and the images of the features."""
    sets = [entry for entry in file.metadata.sets if entry.get("side") == side]
    images = "; ".join(", ".join(filter(None, (str(each.get("name")), each.get("note")))) for each in sets)
    return f"features of {file.metadata.backbone}{f' from {images}' if images else ''}"
