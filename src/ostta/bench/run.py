"""One run: spec -> stream -> adapter -> records -> result file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import backbones
from ..adapter import Adapter, load, versions
from ..backbones.protocol import Backbone
from ..core.types import Error
from ..data.datasets import Dataset, open_dataset
from ..evaluate import Records, evaluate
from ..state import write_atomically
from ..streams import SingleDomain
from .result import Latency, Metrics, Quantiles, Result, RunSpec, Side, StreamInfo, read_result

Watch = Callable[[int, int, float | None], None]


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start: the adapter and its stream, with nothing stepped yet."""

    spec: RunSpec
    adapter: Adapter
    stream: SingleDomain
    desired: Dataset
    undesired: Dataset | None

    @property
    def key(self) -> str:
        """Names the run's files: equal for equal spec, weights and stream."""
        content = [self.spec.model_dump(), self.adapter.backbone.weight_hash, self.stream.hash]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def path(self, out: Path) -> Path:
        # Names such as "folder:PATH" hold characters that do not belong into a file name.
        parts = [self.spec.method, self.spec.desired, self.spec.undesired or "closed"]
        tidy = ["".join(c if c.isalnum() or c in "_-" else "-" for c in Path(part).name) for part in parts]
        return out / f"{'-'.join(tidy)}-s{self.spec.seed}-{self.key}.json"


def prepare(spec: RunSpec, root: Path | None, backbone: Backbone | None = None) -> Prepared:
    """Open data and model; every mistake in `spec` comes out here, before any work."""
    if spec.limit is not None and spec.limit < 1:
        raise Error(f"`limit` is at least 1, not {spec.limit}.")
    opened = partial(open_dataset, root=root, corruption=spec.corruption, severity=spec.severity, seed=spec.seed)
    desired = opened(spec.desired, limit=spec.limit, classes=spec.classes)
    undesired = None
    if spec.undesired is not None and spec.ratio > 0:
        undesired = opened(spec.undesired, named=False)
    stream = SingleDomain(desired, undesired, ratio=spec.ratio, seed=spec.seed)
    classes = spec.classes or desired.classes
    adapter = load(
        backbone if backbone is not None else backbones.load(spec.backbone),
        classes,
        method=spec.method,
        identifier=spec.identifier,
        profile=spec.profile,
        seed=spec.seed,
        **spec.options,
    )
    return Prepared(spec, adapter, stream, desired, undesired)


def existing(prepared: Prepared, out: Path) -> Result | None:
    """The result of this very run, if it is already there."""
    path = prepared.path(out)
    if not path.exists():
        return None
    result = read_result(path)
    return result if result.spec == prepared.spec and result.stream.hash == prepared.stream.hash else None


def carry_out(prepared: Prepared, watch: Watch | None = None) -> tuple[Result, Records]:
    """Run the stream through the adapter and sum up."""
    total = len(prepared.stream)
    began = time.perf_counter()
    records = evaluate(
        prepared.adapter,
        prepared.stream,
        None if watch is None else lambda done, hm: watch(done, total, hm),
    )
    return summarise(prepared, records, time.perf_counter() - began), records


def summarise(prepared: Prepared, records: Records, seconds: float) -> Result:
    """The result of a finished run."""
    adapter, stream = prepared.adapter, prepared.stream
    labels = records.labels
    verdicts = Counter(str(verdict) for verdict in records.column("verdict"))
    counts = {
        "desired": int((labels >= 0).sum()),
        "undesired": int((labels < 0).sum()),
        **dict(sorted(verdicts.items())),
    }
    counts["undesired_missing"] = stream.short_of
    counts["scores_not_finite"] = int((~np.isfinite(records.column("score"))).sum())
    return Result(
        spec=prepared.spec,
        options=json.loads(json.dumps(adapter.resolved.values())),
        option_sources=adapter.resolved.sources,
        stream=StreamInfo(
            hash=stream.hash,
            desired=_side(prepared.desired, stream.desired_count),
            undesired=_side(prepared.undesired, stream.undesired_count) if prepared.undesired else None,
            seed=stream.seed,
        ),
        weight_hash=adapter.backbone.weight_hash,
        class_names_hash=hashlib.sha256(json.dumps(adapter.classes).encode()).hexdigest(),
        unfamiliar_classes=adapter.backbone.unfamiliar(adapter.classes),
        metrics=Metrics.model_validate(records.metrics()),
        counts=counts,
        updates=int(records.column("adapted").sum()),
        latency_ms=_latency(records),
        peak_memory_mb=_peak_memory(),
        seconds=round(seconds, 3),
        remarks=_remarks(prepared),
        versions=versions(),
        hardware=f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores, python {platform.python_version()}",
    )


def write_records(records: Records, path: Path) -> None:
    """The per-image columns as parquet."""
    import io

    import pyarrow
    import pyarrow.parquet

    columns: dict[str, object] = {"source": records.source, "number": records.number, "label": records.label}
    for name in (
        "known",
        "index",
        "score",
        "threshold",
        "mu_desired",
        "mu_undesired",
        "verdict",
        "adapted",
        "loss",
        "reason",
    ):
        columns[name] = records.column(name)
    for part in ("encode", "decide", "update"):
        columns[f"ms_{part}"] = records.timings(part)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    write_atomically(path, buffer.getvalue())


def run(spec: RunSpec, root: Path | None, out: Path, *, keep_records: bool = False, watch: Watch | None = None) -> Path:
    """Carry out `spec` unless its result is already in `out`; the path of the result file."""
    prepared = prepare(spec, root)
    path = prepared.path(out)
    before = existing(prepared, out)
    if before is not None and (not keep_records or (before.records and (out / before.records).exists())):
        return path
    make_folder(out)
    result, records = carry_out(prepared, watch)
    if keep_records:
        kept = path.with_suffix(".parquet")
        write_records(records, kept)
        result = result.model_copy(update={"records": kept.name})
    result.write(path)
    return path


def make_folder(path: Path) -> None:
    """Make an output folder, or say in a sentence why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Error(f"The folder {path} cannot be made ({problem.strerror}).") from None


def _remarks(prepared: Prepared) -> list[str]:
    """What a reader of the figures must be told."""
    sides = [side for side in (prepared.desired, prepared.undesired) if side is not None]
    remarks = [prepared.adapter.backbone.remark, *(f"{side.name}: {side.note}." for side in sides if side.note)]
    if prepared.stream.short_of:
        remarks.append(f"The undesired side is {prepared.stream.short_of} images short of the ratio asked for.")
    return [remark for remark in remarks if remark]


def _side(dataset: Dataset, images: int) -> Side:
    return Side(
        name=dataset.name, images=images, classes=len(dataset.classes), origin=dataset.origin, note=dataset.note
    )


def _latency(records: Records) -> Latency:
    parts = {part: records.timings(part) for part in ("encode", "decide", "update")}
    parts["total"] = sum(parts.values(), start=np.zeros(len(records)))
    return Latency(**{name: _quantiles(values) for name, values in parts.items()})


def _quantiles(values: NDArray[np.float64]) -> Quantiles:
    return Quantiles(p50=round(float(np.quantile(values, 0.5)), 3), p95=round(float(np.quantile(values, 0.95)), 3))


def _peak_memory() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)
