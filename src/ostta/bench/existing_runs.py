"""Which runs a folder already has."""

from __future__ import annotations

import json
from pathlib import Path

from ..core.types import Error
from ..data.class_names import checked_classes
from .result import Result, read_result
from .run import RunInputs, class_names_hash, has_records, open_backbone
from .spec import RunSpec, changed, run_key
from .stream import identify

# What of a spec does not change the stream.
_BESIDE_THE_STREAM = {"backbone", "method", "score", "identifier", "profile", "options", "ahead"}


class ExistingRuns:
    """The results in `out`. As in `execute.existing`, a result counts only for the weights, stream and classes that there are now."""

    def __init__(self, out: Path, root: Path | None, keep_records: bool | None = None) -> None:
        self._out, self._root, self._keep_records = out, root, keep_records
        self._results: dict[str, list[Result]] = {}
        self._seen: set[str] = set()
        self._weights: dict[str, str] = {}
        self._streams: dict[str, tuple[str, str]] = {}

    def has(self, spec: RunSpec) -> bool:
        self._look()
        found = [
            result
            for result in self._results.get(run_key(spec), [])
            if not self._keep_records or has_records(result, self._out)
        ]
        if not found:
            return False
        try:
            inputs = RunInputs(self._weight_hash(spec), *self._stream(spec))
        except Error:
            # The run itself will say what is wrong.
            return False
        return any(inputs.made(result) for result in found)

    def _look(self) -> None:
        """Read what is new since the last look; other runners may be at work here."""
        for path in self._out.glob("*.json"):
            if path.name in self._seen:
                continue
            self._seen.add(path.name)
            try:
                result = read_result(path)
            except Error:
                continue
            self._results.setdefault(run_key(result.spec), []).append(result)

    def _weight_hash(self, spec: RunSpec) -> str:
        if spec.backbone not in self._weights:
            on_cpu = changed(spec, device="cpu", dtype="float32")
            self._weights[spec.backbone] = open_backbone(on_cpu, self._root).weight_hash
        return self._weights[spec.backbone]

    def _stream(self, spec: RunSpec) -> tuple[str, str]:
        """The stream's identity and the hash of its class names."""
        key = json.dumps(spec.model_dump(mode="json", exclude=_BESIDE_THE_STREAM), sort_keys=True)
        if key not in self._streams:
            stream, classes = identify(spec, self._root)
            self._streams[key] = stream, class_names_hash(checked_classes(classes))
        return self._streams[key]
