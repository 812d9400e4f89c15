"""Features of images under the frozen tower, kept on disk: runs that show the same images need the tower once only.

Only for methods that look at nothing but the features of the frozen tower (`Adapter.features_suffice`), in single precision. What
the tower gives for an image is noted while a run shows it; a later run, on the same stream or on another one with some of the same
images, takes it from there and does not read the image. It ends in the same figures to the last bit. Its times are not
those of a run on images, and its result says so.

There is a folder for each data set under each condition. What is in it is used only where weights, preprocessing, number of
threads and versions are the same. Each run adds a file of its own, so runs side by side are never in each other's way; all of it may
be deleted at any time.
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

from ..adapter import Adapter, versions
from ..backbones.features import FeaturesBackbone
from ..backbones.protocol import Backbone
from ..core.types import Error, Prediction
from ..data.dataset import Dataset
from ..data.readers.features import ORIGIN
from ..feature_files import read_features
from ..io import make_folder, write_atomically
from ..streams import Drawn, Sample, Source, Stream

if TYPE_CHECKING:
    from .run import Prepared


FOLDER = ".features"


def cache_of(prepared: Prepared, out: Path) -> FeatureCache | None:
    """The features in the folder `out` that are of use to a run, or None where the run needs more than features."""
    adapter = prepared.adapter
    plain = adapter.resolved.adapter.precision == "single" and adapter.backbone.dtype == torch.float32
    if not adapter.features_suffice or not plain:
        return None
    stores: dict[str, FeatureStore] = {}
    sides: dict[tuple[int, bool], FeatureStore] = {}
    for domain, known, source in _sides(prepared.stream):
        dataset = _whole(source)
        if not isinstance(dataset, Dataset) or _is_features(dataset):
            return None  # images that change along the stream are never seen twice, and features need no cache
        key = store_key(adapter.backbone, dataset, prepared.spec.plugins)
        if key not in stores:
            stores[key] = FeatureStore(out / FOLDER / key, adapter.backbone.feature_width)
        sides[domain, known] = stores[key]
    return FeatureCache(adapter, sides)


def store_key(backbone: Backbone, dataset: Dataset, plugins: Mapping[str, str]) -> str:
    """A name for the features of a data set: different where another backbone, setting or version may give other features."""
    # The note of a set that is made here says from what and how.
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


def has_features(stream: Stream) -> bool:
    """Whether a side of the stream comes from a feature file."""
    return any(_is_features(_whole(source)) for _, _, source in _sides(stream))


def check_features(prepared: Prepared) -> None:
    """Raise an Error unless the adapter can step through the stream, where one of them has features in place of images."""
    adapter, model = prepared.adapter, prepared.adapter.backbone
    for _, _, source in _sides(prepared.stream):
        dataset = _whole(source)
        if _is_features(dataset):
            file = read_features(Path(dataset.layout))
            file.require_encoder(dataset.name, model, adapter.features_suffice, adapter.method_name)
        elif isinstance(model, FeaturesBackbone):
            raise Error(
                f"The backbone {model.id} has no image tower, and '{source.name}' has images: name a feature file for each side, or "
                f"the backbone {model.encoder[0]}.",
                code="backbone-without-tower",
            )


def _whole(source: Source) -> Any:
    return source.whole if isinstance(source, Drawn) else source


def _is_features(source: object) -> bool:
    return isinstance(source, Dataset) and source.origin == ORIGIN


def _sides(stream: Stream) -> Iterator[tuple[int, bool, Source]]:
    for visit in stream.visits:
        yield visit.domain, True, visit.desired
        if visit.undesired is not None:
            yield visit.domain, False, visit.undesired


def _files(dataset: Dataset) -> str:
    """Return a hash of the image files with their sizes and modification times, so that a replaced image is encoded anew."""
    digest = hashlib.sha256()
    for path in dataset.files:
        with suppress(OSError):
            status = path.stat()
            digest.update(os.fsencode(path) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


class FeatureStore:
    """The raw features [D] of one data set's images by their numbers: those in the files of a folder, and new ones."""

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
        """Keep what is new, if it can be kept."""
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
            # The result is what was asked for; a full disk only costs the next run its time.
            return
        self._new.clear()

    def _read(self, path: Path) -> dict[int, torch.Tensor]:
        """Nothing where the file cannot be used."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
                numbers, features = stored["numbers"], stored["features"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}
        if features.dtype != np.float32 or features.shape != (*numbers.shape, self._width) or numbers.ndim != 1:
            return {}
        return dict(zip(numbers.tolist(), torch.from_numpy(features), strict=True))


class FeatureCache:
    """Steps an adapter by features where they are known, and by images where not. `used`: whether any was known."""

    def __init__(self, adapter: Adapter, sides: dict[tuple[int, bool], FeatureStore]) -> None:
        self._sides = sides
        self._width = adapter.backbone.feature_width
        self._given: list[torch.Tensor] = []
        self.used = False

    def lacks(self, domain: int, known: bool, number: int) -> bool:
        """Whether an image of that domain and side must be read."""
        return self._sides[domain, known].get(number) is None

    def covers(self, stream: Stream) -> bool:
        """Whether no image of the stream need be read."""
        samples = stream.starting_at(0, lambda domain, known, number: False)
        return not any(self.lacks(sample.domain, sample.label >= 0, sample.index) for sample in samples)

    @contextmanager
    def noting(self, adapter: Adapter) -> Iterator[None]:
        """Listen to what the tower gives; the new features are kept at the end."""

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
        # One image through the tower, once: anything else is not what a later step by features would do.
        if len(self._given) == 1 and self._given[0].shape == (1, self._width) and self._given[0].dtype == torch.float32:
            store.add(sample.index, self._given[0][0].to("cpu", copy=True))
        return prediction
