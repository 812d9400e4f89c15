"""Cache of image features on disk, shared by runs that show the same images.

The cache serves methods that need only features of the frozen image tower (`Adapter.features_suffice`), in single
precision. A run stores the features of the images that it encodes. A later run on some of the same images reads them
and does not read the images. Its figures are equal to the last bit; its times are not comparable, and its result says
so.

Each data set has a folder for each combination of corruption, weights, preprocessing, number of threads and versions.
Each run adds a file, so runs at the same time do not conflict. The folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..adapter import Adapter
from ..backbones.protocol import Backbone
from ..core.types import Error, Prediction
from ..data.dataset import Dataset
from ..io import make_folder, write_atomically
from ..state import versions
from ..streams import Sample, Stream
from .stream import is_features, sides_of

if TYPE_CHECKING:
    from .run import Prepared


FOLDER = ".features"


def cache_of(prepared: Prepared, out: Path) -> FeatureCache | None:
    """Return the cache of a run in the folder `out`; None if the run needs more than features."""
    adapter = prepared.adapter
    plain = adapter.resolved.adapter.precision == "single" and adapter.backbone.dtype == torch.float32
    if not adapter.features_suffice or not plain:
        return None
    stores: dict[str, FeatureStore] = {}
    sides: dict[tuple[int, bool], FeatureStore] = {}
    for domain, known, dataset in sides_of(prepared.stream):
        # Images that change along the stream are not shown twice, and feature files need no cache.
        if not isinstance(dataset, Dataset) or is_features(dataset):
            return None
        key = store_key(adapter.backbone, dataset, prepared.spec.plugins)
        if key not in stores:
            stores[key] = FeatureStore(out / FOLDER / key, adapter.backbone.feature_width)
        sides[domain, known] = stores[key]
    return FeatureCache(adapter, sides)


def store_key(backbone: Backbone, dataset: Dataset, plugins: Mapping[str, str]) -> str:
    """Return a key of the features of a data set, which differs if backbone, settings or versions differ."""
    # The note of a generated set contains its source and its parameters.
    content = [
        [
            backbone.weight_hash,
            asdict(backbone.preprocessing),
            backbone.device.type,
            torch.get_num_threads(),
            platform.machine(),
            versions(),
            plugins,
        ],
        [dataset.name, dataset.note, dataset.layout, dataset.fingerprint(np.zeros(0, np.int64)), _files(dataset)],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def _files(dataset: Dataset) -> str:
    """Return a hash of paths, sizes and modification times of the images, so that a replaced image is encoded again."""
    digest = hashlib.sha256()
    for path in dataset.files:
        with suppress(OSError):
            status = path.stat()
            digest.update(os.fsencode(path) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


class FeatureStore:
    """Raw features [D] of the images of one data set, by number: those in the files of a folder, and new ones."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self._width = folder, width
        self._known: dict[int, torch.Tensor] = {}
        self._new: dict[int, torch.Tensor] = {}
        for path in sorted(folder.glob("*.npz")) if folder.is_dir() else ():
            self._known |= self._read(path)

    def get(self, number: int) -> torch.Tensor | None:
        return self._known.get(number)

    def add(self, number: int, features: torch.Tensor) -> None:
        self._known[number] = self._new[number] = features

    def write(self) -> None:
        """Write the new features, if the disk allows it."""
        if not self._new:
            return
        numbers = sorted(self._new)
        buffer = io.BytesIO()
        np.savez(
            buffer,
            numbers=np.array(numbers, np.int64),
            features=torch.stack([self._new[number] for number in numbers]).numpy(),
        )
        name = hashlib.sha256(buffer.getvalue()).hexdigest()[:16]
        try:
            make_folder(self.folder)
            write_atomically(self.folder / f"{name}.npz", buffer.getvalue())
        except (Error, OSError):
            # A full disk costs the next run time, and does not affect the result of this run.
            return
        self._new.clear()

    def _read(self, path: Path) -> dict[int, torch.Tensor]:
        """Return the features of a file; an empty dictionary if the file is invalid."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                numbers, features = stored["numbers"], stored["features"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}
        if features.dtype != np.float32 or features.shape != (*numbers.shape, self._width) or numbers.ndim != 1:
            return {}
        return dict(zip(numbers.tolist(), torch.from_numpy(features), strict=True))


class FeatureCache:
    """Steps an adapter by cached features, and by images otherwise. `used`: whether any features were cached."""

    def __init__(self, adapter: Adapter, sides: dict[tuple[int, bool], FeatureStore]) -> None:
        self._sides = sides
        self._width = adapter.backbone.feature_width
        self._given: list[torch.Tensor] = []
        self.used = False

    def lacks(self, domain: int, known: bool, number: int) -> bool:
        """Return whether an image of this domain and side must be read."""
        return self._sides[domain, known].get(number) is None

    def covers(self, stream: Stream) -> bool:
        """Return whether all images of the stream are cached."""
        samples = stream.starting_at(0, lambda domain, known, number: False)
        return not any(self.lacks(sample.domain, sample.label >= 0, sample.index) for sample in samples)

    @contextmanager
    def noting(self, adapter: Adapter) -> Iterator[None]:
        """Record the outputs of the image tower, and write the new features at the end."""

        def note(module: Any, pixels: Any, output: Any) -> None:
            self._given.append(output.detach())

        handle = adapter.backbone.vision.register_forward_hook(note)
        try:
            yield
        finally:
            handle.remove()
        for store in self._sides.values():
            store.write()

    def step(self, adapter: Adapter, sample: Sample) -> Prediction:
        store = self._sides[sample.domain, sample.label >= 0]
        features = store.get(sample.index)
        if features is not None:
            self.used = True
            return adapter.step_features(features)
        self._given.clear()
        prediction = adapter.step(sample.image)
        # A step by features equals this step only if the tower encoded one image once.
        if len(self._given) == 1 and self._given[0].shape == (1, self._width) and self._given[0].dtype == torch.float32:
            store.add(sample.index, self._given[0][0].to("cpu", copy=True))
        return prediction
