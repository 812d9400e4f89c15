"""Checkpoints, from which an interrupted run resumes with an equal result.

A checkpoint is a state file, the records so far in several files, and a small JSON file with their names. The JSON file
is written last, in one step, so that the files that it names always belong together. Each checkpoint writes only the
new records.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..adapter import Adapter
from ..core.types import Error, Event, Prediction, Timing, Verdict
from ..evaluation.loop import Records
from ..io import make_folder, parse_json, write_atomically
from .machine import Load
from .records import parquet_bytes

FOLDER = ".checkpoints"


EVERY = 2_000


_OF_SAMPLE = ("source", "number", "label", "domain", "features")


_PARTS_OF_TIME = tuple(field.name for field in fields(Timing))


_OF_PREDICTION = tuple(field.name for field in fields(Prediction) if field.name not in ("ms", "features", "events"))


# Stored as text, because their names differ from run to run, and parquet has no columns of empty mappings.
_AS_TEXT = ("class_scores", "class_probabilities", "diagnostics", "evidence")


@dataclass(frozen=True)
class RunPosition:
    """The position of a run: adapter, records, seconds, peak memory and load so far."""

    adapter: Adapter
    records: Records
    seconds: float
    peak_memory_mb: float | None
    load: Load | None = None


class Checkpoint:
    """The checkpoint of the run `key`. A checkpoint with another `identity` is ignored."""

    def __init__(self, out: Path, key: str, identity: dict[str, Any], every: int = EVERY) -> None:
        if every < 1:
            raise Error(f"`checkpoint_every` must be at least 1 image, not {every}.", code="option-invalid")
        self.folder, self.key, self.every = out / FOLDER, key, every
        self._identity = json.loads(json.dumps(identity))
        self._parts: list[str] = []
        self._kept = 0

    def due(self, done: int) -> bool:
        return done % self.every == 0

    def read(self, fresh: Adapter) -> RunPosition | None:
        """Return the position from which a run with the new adapter `fresh` can resume; None if there is none."""
        try:
            manifest = parse_json((self.folder / f"{self.key}.json").read_bytes())
            if manifest["identity"] != self._identity:
                return None
            if any(Path(name).name != name for name in (manifest["state"], *manifest["parts"])):
                return None  # the file must not name files in other folders
            records = Records()
            for part in manifest["parts"]:
                _unpack((self.folder / part).read_bytes(), records)
            method, score, identifier = (part.given for part in fresh.choice.parts().values())
            place = self.folder / manifest["state"]
            adapter = Adapter.restore(place, fresh.backbone, method=method, score=score, identifier=identifier)
            load = None if manifest.get("load") is None else Load(**manifest["load"])
            reached = RunPosition(adapter, records, manifest["seconds"], manifest["peak_memory_mb"], load)
        except (Error, OSError, ValueError, KeyError, TypeError):
            return None
        if len(records) != manifest["position"]:
            return None
        self._parts, self._kept = manifest["parts"], len(records)
        return reached

    def write(self, reached: RunPosition) -> None:
        make_folder(self.folder)
        position = len(reached.records)
        state, part = f"{self.key}-{position}.ostta", f"{self.key}-{self._kept}-{position}.parquet"
        reached.adapter.save(self.folder / state)
        write_atomically(self.folder / part, _pack(reached.records, self._kept))
        self._parts.append(part)
        self._kept = position
        manifest = {
            "identity": self._identity,
            "position": position,
            "state": state,
            "parts": self._parts,
            "seconds": reached.seconds,
            "peak_memory_mb": reached.peak_memory_mb,
            "load": None if reached.load is None else reached.load.model_dump(),
        }
        write_atomically(self.folder / f"{self.key}.json", json.dumps(manifest, indent=1).encode())
        for old in self.folder.glob(f"{self.key}-*.ostta"):
            if old.name != state:
                old.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all files of this run, the JSON file first, so that it never names a missing file."""
        (self.folder / f"{self.key}.json").unlink(missing_ok=True)
        for pattern in (f"{self.key}-*", f".{self.key}*"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)


def _pack(records: Records, start: int) -> bytes:
    """Return the records from `start` on as parquet. Unlike the records file, it distinguishes None from NaN."""
    columns: dict[str, list[Any]] = {name: getattr(records, name)[start:] for name in _OF_SAMPLE}
    predictions = records.predictions[start:]
    for name in _OF_PREDICTION:
        values = [getattr(prediction, name) for prediction in predictions]
        if name in _AS_TEXT:
            values = [None if value is None else json.dumps(dict(value)) for value in values]
        columns[f"prediction_{name}"] = values
    columns["events"] = [json.dumps([event.to_dict() for event in prediction.events]) for prediction in predictions]
    for part in _PARTS_OF_TIME:
        columns[f"ms_{part}"] = [getattr(prediction.ms, part) for prediction in predictions]
    return parquet_bytes(columns)


def _unpack(content: bytes, records: Records) -> None:
    """Append the content that `_pack` returned to `records`."""
    import pyarrow.parquet

    columns = pyarrow.parquet.read_table(io.BytesIO(content)).to_pydict()
    features = columns.pop("features")
    records.features += [None if row is None else np.array(row, dtype=np.float32) for row in features]
    for name in ("source", "number", "label", "domain"):
        getattr(records, name).extend(columns[name])
    for row in range(len(features)):
        values = {name: columns[f"prediction_{name}"][row] for name in _OF_PREDICTION}
        if values["verdict"] is not None:
            values["verdict"] = Verdict(values["verdict"])
        for name in _AS_TEXT:
            values[name] = None if values[name] is None else parse_json(values[name])
        ms = Timing(**{part: columns[f"ms_{part}"][row] for part in _PARTS_OF_TIME})
        events = tuple(Event(**event) for event in parse_json(columns["events"][row]))
        records.predictions.append(Prediction(**values, ms=ms, events=events))
