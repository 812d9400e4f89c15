"""A feature file as a source: its rows stand in for images, in the order of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..data.images import ImageFeatures
from ..feature_files import features_path, read_features
from .item import Item, file_key
from .source import Skip, Source


class StoredFeatures(Source):
    """The rows of `features:FILE`, named features:FILE#ROW."""

    def __init__(self, name: str, skip: Skip | None) -> None:
        super().__init__(name, skip)
        self._path = features_path(name)

    def check(self) -> None:
        read_features(self._path)

    def __iter__(self) -> Iterator[Item]:
        file = read_features(self._path)
        found = os.stat(self._path)
        key = file_key(self._path, found.st_size, found.st_mtime_ns)
        for row, values in enumerate(file.features):
            if self.wanted(own := f"{key}#{row}"):
                yield Item(ImageFeatures(values), f"{self.name}#{row}", own)
