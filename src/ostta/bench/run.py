"""One run: spec, stream, adapter, records, result file."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .. import backbones
from ..adapter import Adapter, load, versions
from ..backbones.protocol import Backbone
from ..core.types import Error
from ..evaluation import analyses
from ..evaluation.loop import Records, evaluate
from ..evaluation.measures import measure_run
from ..evaluation.metrics import mean
from ..feature_files import placed_features
from ..io import make_folder
from ..lookahead import why_not
from ..streams import Stream, prefetched
from .checkpoint import EVERY, Checkpoint, Reached
from .features import FeatureCache, cache_of, check_features, has_features
from .folder import RunInputs, class_names_hash, wait_for_lock
from .log import Thinned, open_log
from .machine import LoadMeter, hardware, peak_memory, reset_peak
from .records import write_records
from .result import Analyses, DomainFigures, Figures, Latency, Metrics, Quantiles, Result, Side, StreamInfo, read_result
from .scenario import FoolingScenario
from .spec import RunSpec, code_of, identity, packages_of
from .stream import check_names, compose

# Former modules of this path are aliases (`ostta._aliases`).
__path__: list[str] = []

Watch = Callable[[int, int, float | None], None]


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start: the adapter and its stream, with nothing stepped yet, and what a reader must be told."""

    spec: RunSpec
    adapter: Adapter
    stream: Stream
    desired: Side
    undesired: Side | None
    remarks: tuple[str, ...]
    stream_identity: str

    @property
    def inputs(self) -> RunInputs:
        return RunInputs(
            self.adapter.backbone.weight_hash, self.stream_identity, class_names_hash(self.adapter.classes)
        )

    @property
    def key(self) -> str:
        """Names the run's files: equal for equal spec, weights and stream."""
        content = [identity(self.spec), self.adapter.backbone.weight_hash, self.stream_identity]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def path(self, out: Path) -> Path:
        # Names such as "folder:PATH" hold characters that do not belong into a file name.
        kind = self.spec.scenario.kind
        sets = [] if kind == "domains" else [self.spec.desired, self.spec.undesired or "closed"]
        parts = [self.spec.method, *sets] + ([] if kind == "single" else [kind])
        tidy = ["".join(c if c.isalnum() or c in "_-" else "-" for c in Path(part).name) for part in parts]
        return out / f"{'-'.join(tidy)}-s{self.spec.seed}-{self.key}.json"


def prepare(
    spec: RunSpec, root: Path | None, backbone: Backbone | None = None, stream_identity: str | None = None
) -> Prepared:
    """Open data and model. All errors in `spec` are raised here, and those in names before anything is opened.

    The identity of the stream is computed from the data unless it is given.
    """
    code = code_of(spec)
    choice = check_names(spec, code)
    model = backbone
    if model is None and isinstance(spec.scenario, FoolingScenario):
        model = open_backbone(spec, root)  # which images fool it, it must be asked itself
    composed = compose(spec, root, model)
    adapter = load(
        model if model is not None else open_backbone(spec, root),
        composed.known_classes(spec),
        method=choice.method.of,
        score=choice.score.of,  # a spec without one means the identifier's or `max`, whatever its profile
        identifier=choice.identifier.of,
        profile=spec.profile,
        seed=spec.seed,
        options=spec.options,
        guard=spec.guard,
    )
    if spec.ahead > 1 and (reason := why_not(adapter)) is not None:
        raise Error(f"Images cannot be encoded ahead: {reason}. Leave out `--ahead`.", code="ahead-impossible")
    prepared = Prepared(
        spec,
        adapter,
        composed.stream,
        composed.desired,
        composed.undesired,
        (adapter.backbone.remark, *composed.remarks),
        composed.stream.identity if stream_identity is None else stream_identity,
    )
    check_features(prepared)
    return prepared


def open_backbone(spec: RunSpec, root: Path | None = None) -> Backbone:
    """The backbone that `spec` names; a feature file may be in the folder `root` of the data sets."""
    code = code_of(spec)
    if spec.backbone in code:
        return backbones.call_factory(code[spec.backbone], spec.device, spec.dtype)
    return backbones.load(placed_features(spec.backbone, root), spec.device, spec.dtype)


def existing(prepared: Prepared, out: Path) -> Result | None:
    """The result of this very run, if it is already there."""
    path = prepared.path(out)
    if not path.exists():
        return None
    result = read_result(path)
    return result if identity(result.spec) == identity(prepared.spec) and prepared.inputs.made(result) else None


def carry_out(
    prepared: Prepared,
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
    cache: FeatureCache | None = None,
    log: str | None = None,
) -> tuple[Result, Records]:
    """Run the stream through the adapter and sum up; with a `checkpoint`, from where it was left; with a `cache`, by the features in it
    where there are. `log` is where curves are written on the way, such as "tensorboard:FOLDER".
    """
    total = len(prepared.stream)
    before = checkpoint.read(prepared.adapter) if checkpoint is not None else None
    if before is None:
        before = Reached(prepared.adapter, Records(), 0.0, None)
    adapter, records = before.adapter, before.records
    told = None if log is None else Thinned(open_log(log, prepared.path(Path()).stem, len(records) + 1), total)
    _load_libraries()
    reset_peak(adapter.device)
    meter = LoadMeter()
    began = time.perf_counter()

    def reached() -> Reached:
        seconds = before.seconds + time.perf_counter() - began
        peaks = [peak for peak in (before.peak_memory_mb, peak_memory(adapter.device)) if peak is not None]
        return Reached(adapter, records, seconds, max(peaks, default=None), meter.read(before.load))

    def after(done: int, hm: float | None) -> None:
        if checkpoint is not None and checkpoint.due(done) and done < total:
            checkpoint.write(reached())
        if told is not None:
            told.step(done, records.predictions[-1], hm)
        if watch is not None:
            watch(done, total, hm)

    with nullcontext() if told is None else closing(told):
        if cache is None:
            samples = prefetched(prepared.stream.starting_at(len(records)))
            evaluate(adapter, samples, after, records, ahead=prepared.spec.ahead)
        else:
            samples = prepared.stream.starting_at(len(records), cache.lacks)
            if not cache.covers(prepared.stream):
                samples = prefetched(samples)
            with cache.noting(adapter):
                evaluate(adapter, samples, after, records, partial(cache.step, adapter))
        by_features = (cache is not None and cache.used) or has_features(prepared.stream)
        result = summarise(prepared, reached()).model_copy(update={"cached_features": by_features})
        if told is not None:
            told.end(result)
    return result, records


def _load_libraries() -> None:
    """What the figures at the end need: loaded first, it counts alike in the peak memory of the first run of a process and of all others."""
    for library in ("pyarrow.parquet", "scipy.spatial.distance", "sklearn.metrics"):
        importlib.import_module(library)


def summarise(prepared: Prepared, reached: Reached) -> Result:
    """The result of a finished run."""
    adapter, records, stream = reached.adapter, reached.records, prepared.stream
    labels = records.labels
    domains = _domains(stream, records)
    verdicts = Counter(str(verdict) for verdict in records.column("verdict"))
    counts = {
        "desired": int((labels >= 0).sum()),
        "undesired": int((labels < 0).sum()),
        **dict(sorted(verdicts.items())),
    }
    counts["undesired_missing"] = stream.short_of
    counts["scores_not_finite"] = int((~np.isfinite(records.column("score"))).sum())
    problems: list[str] = []
    measures = measure_run(records.run_columns(), problems)
    return Result(
        spec=prepared.spec,
        options=json.loads(json.dumps(adapter.resolved.values())),
        option_sources=adapter.resolved.sources,
        stream=StreamInfo(
            hash=stream.hash,
            desired=prepared.desired,
            undesired=prepared.undesired,
            seed=prepared.spec.seed,
            draw=prepared.spec.draw,
            identity=prepared.stream_identity,
        ),
        weight_hash=adapter.backbone.weight_hash,
        class_names_hash=class_names_hash(adapter.classes),
        unfamiliar_classes=adapter.unfamiliar,
        metrics=Metrics.model_validate(records.metrics()),
        domains=domains,
        hm_mean_domains=mean([domain.metrics.hm for domain in domains]),
        analyses=_analyses(adapter, records),
        counts=counts,
        updates=int(records.column("adapted").sum()),
        resets=int(np.isfinite(records.diagnostic("reset")).sum()),
        events=dict(sorted(Counter(event.kind for each in records.predictions for event in each.events).items())),
        latency_ms=_latency(records),
        peak_memory_mb=reached.peak_memory_mb,
        seconds=round(reached.seconds, 3),
        measures=measures,
        remarks=[remark for remark in (*prepared.remarks, *problems) if remark],
        versions=versions() | packages_of(prepared.spec),
        hardware=hardware(prepared.adapter.device),
        threads=torch.get_num_threads(),
        load=reached.load,
    )


@dataclass(frozen=True)
class ResultFile:
    """Where a result is, and whether it had to be made."""

    path: Path
    fresh: bool


def ensure_result(
    prepared: Prepared,
    out: Path,
    *,
    keep_records: bool | None = None,
    watch: Watch | None = None,
    checkpoint_every: int = EVERY,
    locked: bool = False,
    cache_features: bool = False,
    log: str | None = None,
) -> ResultFile:
    """Carry out a run unless its result is already in `out`. `locked` says that this process has the run's lock already.

    `keep_records`: the per-image records are kept beside the result. None: kept, but a result without them is a result. True: such a
    run is carried out again.
    `cache_features`: image features are kept in `out` and shared by all runs on one stream that need nothing else.
    """
    make_folder(out)
    with nullcontext() if locked else wait_for_lock(out, prepared.spec):
        path = prepared.path(out)
        before = existing(prepared, out)
        if before is not None and (not keep_records or has_records(before, out)):
            return ResultFile(path, fresh=False)
        checkpoint = Checkpoint(out, prepared.key, _identity(prepared), checkpoint_every)
        # Stored features are those of single images.
        cache = cache_of(prepared, out) if cache_features and prepared.spec.ahead == 1 else None
        result, records = carry_out(prepared, watch, checkpoint, cache, log)
        if keep_records is not False:
            kept = path.with_suffix(".parquet")
            write_records(records, kept)
            result = result.model_copy(update={"records": kept.name})
        result.write(path)
        checkpoint.remove()
        # What an earlier process was writing when it was killed.
        for begun in out.glob(f".{path.stem}.*.partial"):
            begun.unlink(missing_ok=True)
    return ResultFile(path, fresh=True)


def run(
    spec: RunSpec,
    root: Path | None,
    out: Path,
    *,
    keep_records: bool | None = None,
    watch: Watch | None = None,
    checkpoint_every: int = EVERY,
) -> Path:
    """Carry out `spec` unless its result is already in `out`; the path of the result file."""
    prepared = prepare(spec, root)
    return ensure_result(prepared, out, keep_records=keep_records, watch=watch, checkpoint_every=checkpoint_every).path


def has_records(result: Result, out: Path) -> bool:
    """Whether the per-image records of a result in `out` are there."""
    return result.records is not None and (out / result.records).exists()


def _identity(prepared: Prepared) -> dict[str, object]:
    """What must be equal, beside the run's key, for a run to go on from a checkpoint without a bit of difference."""
    return {
        "options": prepared.adapter.resolved.values(),
        "versions": versions() | packages_of(prepared.spec),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
    }


def _domains(stream: Stream, records: Records) -> list[DomainFigures]:
    """The figures of every domain, where there are several."""
    if len(stream.domains) < 2:
        return []
    images = Counter(records.domain)
    return [
        DomainFigures(name=stream.domains[number], images=images[number], metrics=Figures.model_validate(figures))
        for number, figures in records.metrics_by_domain().items()
    ]


def _analyses(adapter: Adapter, records: Records) -> Analyses:
    return Analyses(
        stream_distances=analyses.stream_distances(records),
        bank_distances=analyses.bank_distances(adapter),
        average_matches=analyses.average_matches(records),
        reliable=analyses.reliable_accuracy(records),
        bank_bytes=analyses.bank_bytes(adapter),
        adapted_parameters=analyses.adapted_parameters(adapter),
    )


def _latency(records: Records) -> Latency:
    parts = {part: records.timings(part) for part in ("encode", "decide", "update")}
    parts["total"] = sum(parts.values(), start=np.zeros(len(records)))
    return Latency(**{name: _quantiles(values) for name, values in parts.items()})


def _quantiles(values: NDArray[np.float64]) -> Quantiles:
    figures = {"p50": np.quantile(values, 0.5), "p95": np.quantile(values, 0.95), "mean": values.mean()}
    return Quantiles(**{name: round(float(value), 3) for name, value in figures.items()})
