"""Checkpoints: where a long run has got to, so that the next start goes on from there to the same result.

A checkpoint is a state file, the records so far in parts, and a small JSON file that names them all. The JSON is written last and
in one step, so what it names belongs together, whenever the process ends. Each time only the new records are written.
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
from ..evaluation.records import Records
from ..io import make_folder, parse_json, write_atomically
from .result import Load

FOLDER = ".checkpoints"


EVERY = 2_000


_OF_SAMPLE = ("source", "number", "label", "domain", "features")


_PARTS_OF_TIME = tuple(field.name for field in fields(Timing))


_OF_PREDICTION = tuple(field.name for field in fields(Prediction) if field.name not in ("ms", "features", "events"))


# As text: their names differ from run to run, and a column of mappings that are all empty cannot be written.
_AS_TEXT = ("class_scores", "class_probabilities", "diagnostics", "evidence")


@dataclass(frozen=True)
class Reached:
    """How far a run has come, and what that cost."""

    adapter: Adapter
    records: Records
    seconds: float
    peak_memory_mb: float | None
    load: Load | None = None


class Checkpoint:
    """The checkpoint of one run, called `key`. One that was made under another `identity` is as good as none."""

    def __init__(self, out: Path, key: str, identity: dict[str, Any], every: int = EVERY) -> None:
        if every < 1:
            raise Error(f"`checkpoint_every` must be at least 1 image, not {every}.", code="option-invalid")
        self.folder, self.key, self.every = out / FOLDER, key, every
        self._identity = json.loads(json.dumps(identity))
        self._parts: list[str] = []
        self._kept = 0

    def due(self, done: int) -> bool:
        return done % self.every == 0

    def read(self, fresh: Adapter) -> Reached | None:
        """What a run that begins with `fresh` has reached before, or None where there is nothing that can be gone on from."""
        try:
            manifest = parse_json((self.folder / f"{self.key}.json").read_bytes())
            if manifest["identity"] != self._identity:
                return None
            if any(Path(name).name != name for name in (manifest["state"], *manifest["parts"])):
                return None  # no other folder is read, whatever the file says
            records = Records()
            for part in manifest["parts"]:
                _unpack((self.folder / part).read_bytes(), records)
            method, score, identifier = (part.given for part in fresh.choice.parts().values())
            place = self.folder / manifest["state"]
            adapter = Adapter.restore(place, fresh.backbone, method=method, score=score, identifier=identifier)
            load = None if manifest.get("load") is None else Load(**manifest["load"])
            reached = Reached(adapter, records, manifest["seconds"], manifest["peak_memory_mb"], load)
        except (Error, OSError, ValueError, KeyError, TypeError):
            return None
        if len(records) != manifest["position"]:
            return None
        self._parts, self._kept = manifest["parts"], len(records)
        return reached

    def write(self, reached: Reached) -> None:
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
        """Take away everything of this run; the JSON first, so that nothing is ever named that is not there."""
        (self.folder / f"{self.key}.json").unlink(missing_ok=True)
        for pattern in (f"{self.key}-*", f".{self.key}*"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)


def _pack(records: Records, start: int) -> bytes:
    """The records from `start` on. Unlike the file for readers it keeps apart None from NaN, and leaves nothing out."""
    import pyarrow
    import pyarrow.parquet

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
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _unpack(content: bytes, records: Records) -> None:
    """Add what `_pack` made to `records`."""
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
