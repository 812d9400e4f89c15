"""Feature files: damaged bytes, and changed arrays and metadata with recomputed hashes."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

import ostta
from ostta import backbones
from ostta.data import open_dataset
from ostta.feature_files import Metadata, _hash, write_features

from .engine import Kind, PromiseError
from .mutate import ODD, damaged, damaged_tree, json_text

NAMES = ("features", "labels", "classes", "class_embeddings", "logit_scale", "words", "word_embeddings", "centre")


class FeatureFiles(Kind):
    """A file that can be read can be used as a data set and as a backbone."""

    def __init__(self) -> None:
        import tempfile

        rows = np.eye(6, 4, dtype="f4")
        rows[4:] = 0.5
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "one.npz"
            about = Metadata(
                "mine", "0" * 64, ("a photo of a {}.",), {"lda": {"search": "exact"}}, "", ("dog",), ({"name": "x"},)
            )
            write_features(
                path, rows, np.array([0, 1, 0, 1, -1, -1]), ["cat", "dog"], rows[:2], 100.0, about, ["pear"], rows[2:3],
                rows.mean(0),
            )  # fmt: skip
            self.content = path.read_bytes()
        with np.load(io.BytesIO(self.content)) as stored:
            self.arrays: dict[str, Any] = {name: stored[name] for name in stored.files}

    def mutation(self, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            return damaged(self.content, rng)
        arrays = dict(self.arrays)
        about = json.loads(str(arrays["metadata"]))
        if rng.random() < 0.4:
            hashes = about.pop("sha256")
            about = damaged_tree(about, rng)
            if isinstance(about, dict):
                about["sha256"] = hashes
        else:
            name = rng.choice(NAMES)
            arrays[name] = _changed(arrays[name], rng)
            about["sha256"] = {each: _hash(arrays[each]) for each in NAMES}
        arrays["metadata"] = np.array(json_text(about))
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    def place(self, content: bytes, folder: Path) -> None:
        (folder / "input.npz").write_bytes(content)

    def target(self, folder: Path) -> None:
        name = f"features:{folder / 'input.npz'}"
        dataset, model = open_dataset(name), backbones.load(name)
        open_dataset(name, named=False)
        prediction = ostta.load(model, dataset.classes, method="zero_shot").step(dataset.image(0))
        if not np.isfinite(prediction.score):
            raise PromiseError("a feature file was read whose features are not finite")


def _changed(array: Any, rng: random.Random) -> Any:
    match rng.randrange(5):
        case 0:
            return array.reshape(rng.choice([(-1,), (1, *array.shape), (*array.shape, 1)]))
        case 1:
            return array[: rng.randrange(len(array) + 1)] if array.ndim else array[None]
        case 2:
            return np.array(
                rng.choice(["", "x", "cat\n", "\ud800"]) if rng.random() < 0.5 else rng.choice([0, -1, np.nan, 1e30])
            )
        case 3:
            return array.astype(rng.choice(["f2", "f8", "i8", "U3"])) if array.dtype.kind != "U" else array.astype("U1")
        case _:
            changed = array.copy()
            odd = [value for value in ODD if isinstance(value, str if array.dtype.kind == "U" else float)]
            value = rng.choice(odd)
            if array.dtype.kind == "i":
                value = rng.choice([-2, -1, 5, 2**40])
            changed[(0,) * array.ndim] = value
            return changed
