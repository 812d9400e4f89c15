"""Features of a stream's images under the frozen tower, kept on disk: many runs on one stream need the tower once only.

Only for methods that look at nothing but the features of the frozen tower (`Adapter.features_suffice`), in single precision. The
first such run is an ordinary one, and what the tower gave is noted on the way. Later runs read it in place of the images, and end
in the same figures to the last bit. Their times are not those of a run, and their results say so.

A file is used only where weights, stream, preprocessing, number of threads and versions are the same. It may be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...adapter import Adapter, versions
from ...core.types import Error, Prediction
from ...evaluate import Records
from ...files import make_folder, write_atomically
from ...streams import Sample

if TYPE_CHECKING:
    from .execute import Prepared

FOLDER = ".features"
# What of a spec says nothing about the images.
_BESIDE_THE_IMAGES = {"backbone", "method", "identifier", "score", "profile", "options"}

Features = NDArray[np.float32]


def cache_of(prepared: Prepared, out: Path) -> FeatureCache | None:
    """The cache of a run's features in the folder `out`, or None where the run needs more than features."""
    adapter = prepared.adapter
    plain = adapter.resolved.adapter.precision == "single" and adapter.backbone.dtype == torch.float32
    if not adapter.features_suffice or not plain:
        return None
    sides = [None if side is None else side.model_dump(mode="json") for side in (prepared.desired, prepared.undesired)]
    content = [
        adapter.backbone.weight_hash,
        prepared.stream.hash,
        # The hash is of the order alone: corruption, data sets and the files of code behind them are in the spec.
        prepared.spec.model_dump(mode="json", exclude=_BESIDE_THE_IMAGES),
        sides,
        asdict(adapter.backbone.preprocessing),
        adapter.device.type,
        torch.get_num_threads(),
        platform.machine(),
        versions(),
    ]
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]
    return FeatureCache(out / FOLDER / f"{key}.npy", len(prepared.stream), adapter.backbone.feature_width)


class FeatureCache:
    """The raw features of a stream's images in its order, in a file that may be there or not."""

    def __init__(self, path: Path, images: int, width: int) -> None:
        self.path, self.images, self.width = path, images, width

    def read(self) -> Features | None:
        """None where there is no file, or none that can be used."""
        try:
            found = np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        fits = found.dtype == np.float32 and found.shape == (self.images, self.width)
        return found if fits else None

    def steps(self, adapter: Adapter, records: Records) -> Callable[[Sample], Prediction] | None:
        """How to step through the stream without its images; None where the features are not there.

        `records` are those that the steps fill: the next image is the one after them.
        """
        features = self.read()
        if features is None:
            return None
        return lambda sample: adapter.step_features(torch.from_numpy(features[len(records)]))

    @contextmanager
    def noting(self, adapter: Adapter, records: Records) -> Iterator[None]:
        """Note what the tower gives while the whole stream goes through `adapter`, and write it at the end.

        Nothing is written where a part of the stream has gone before, or where a step did not look through the tower exactly once.
        """
        given: list[torch.Tensor] = []
        begun = not len(records)

        def note(module: Any, pixels: Any, output: Any) -> None:
            if begun:
                given.append(output.detach().to("cpu", copy=True))

        handle = adapter.backbone.vision.register_forward_hook(note)
        try:
            yield
        finally:
            handle.remove()
        once = len(given) == len(records) == self.images
        if once and all(raw.dtype == torch.float32 and raw.shape == (1, self.width) for raw in given):
            self._write(torch.cat(given).numpy())

    def _write(self, features: Features) -> None:
        buffer = io.BytesIO()
        np.save(buffer, features, allow_pickle=False)
        try:
            make_folder(self.path.parent)
            write_atomically(self.path, buffer.getvalue())
        except (Error, OSError):
            # The result is what was asked for; a full disk only costs the next run its time.
            return
